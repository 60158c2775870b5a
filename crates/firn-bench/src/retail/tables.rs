//! The schema: tables, the steps that write them, and the columns that have an index.

use super::life::Step::{self, *};

/// A table. Its rows belong to one order each.
#[derive(Debug)]
pub(super) struct Table {
    /// The first part of its keys.
    pub(super) name: &'static str,
    pub(super) rows: Rows,
    /// The steps that insert or update its rows of an order.
    pub(super) written_by: &'static [Step],
    /// The columns with an index; the row has them first.
    pub(super) indexes: &'static [Field],
}

/// How many rows an order has in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rows {
    One,
    /// One for each line of the order, numbered from 0, all written by the same steps.
    Lines,
    /// One for each step that writes the table, numbered by its version. Never updated.
    PerStep,
}

/// A column with an index. Its value is a function of the order, the line and the version of the
/// row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Customer,
    Shop,
    Courier,
    Packer,
    Hour,
    Kind,
    Rating,
    ShopState,
    AreaState,
    ProductState,
    MethodState,
    CampaignState,
    CourierState,
    Updated,
}

impl Field {
    /// The name of the column, and of its index in keys.
    pub(super) fn name(self) -> &'static str {
        match self {
            Field::Customer => "customer",
            Field::Shop => "shop",
            Field::Courier => "courier",
            Field::Packer => "packer",
            Field::Hour => "hour",
            Field::Kind => "kind",
            Field::Rating => "rating",
            Field::ShopState => "shop_state",
            Field::AreaState => "area_state",
            Field::ProductState => "product_state",
            Field::MethodState => "method_state",
            Field::CampaignState => "campaign_state",
            Field::CourierState => "courier_state",
            Field::Updated => "updated",
        }
    }

    /// True if all rows of an order in a table have the same value, in every version.
    pub(super) fn is_of_order(self) -> bool {
        self.is_fixed() && self != Field::Kind
    }

    /// True if no update of a row changes it.
    pub(super) fn is_fixed(self) -> bool {
        matches!(
            self,
            Field::Customer
                | Field::Shop
                | Field::Courier
                | Field::Packer
                | Field::Hour
                | Field::Kind
                | Field::Rating
        )
    }
}

/// The table of the orders themselves.
pub(super) const ORDERS: usize = 0;
/// The table of their lines.
pub(super) const LINES: usize = 1;

/// All tables.
pub(super) const TABLES: [Table; 10] = [
    Table {
        name: "orders",
        rows: Rows::One,
        written_by: &[
            Placed, Paid, Accepted, Packing, Packed, Assigned, PickedUp, Delivered, Invoiced,
            Finished, Reviewed,
        ],
        indexes: &[
            Field::Customer,
            Field::ShopState,
            Field::AreaState,
            Field::Updated,
        ],
    },
    Table {
        name: "order_lines",
        rows: Rows::Lines,
        written_by: &[Placed, Accepted, Packed, Delivered, Reviewed],
        indexes: &[Field::Customer, Field::ProductState, Field::Hour],
    },
    Table {
        name: "payments",
        rows: Rows::One,
        written_by: &[Placed, Paid, Delivered, Finished],
        indexes: &[Field::Customer, Field::MethodState, Field::Hour],
    },
    Table {
        name: "coupons",
        rows: Rows::One,
        written_by: &[Placed, Paid, Finished],
        indexes: &[Field::Customer, Field::CampaignState],
    },
    Table {
        name: "packings",
        rows: Rows::One,
        written_by: &[Accepted, Packing, Packed, PickedUp],
        indexes: &[Field::ShopState, Field::Packer, Field::Updated],
    },
    Table {
        name: "deliveries",
        rows: Rows::One,
        written_by: &[Assigned, PickedUp, Located, Delivered],
        indexes: &[
            Field::Customer,
            Field::CourierState,
            Field::AreaState,
            Field::Updated,
        ],
    },
    Table {
        name: "events",
        rows: Rows::PerStep,
        written_by: &[
            Placed, Paid, Accepted, Packing, Packed, Assigned, PickedUp, Located, Delivered,
            Invoiced, Finished, Reviewed,
        ],
        indexes: &[Field::Customer, Field::Kind],
    },
    Table {
        name: "messages",
        rows: Rows::PerStep,
        written_by: &[Placed, Paid, Accepted, Assigned, Delivered, Finished],
        indexes: &[Field::Customer, Field::Kind, Field::Hour],
    },
    Table {
        name: "invoices",
        rows: Rows::One,
        written_by: &[Paid, Invoiced, Finished],
        indexes: &[Field::Customer, Field::Shop, Field::Hour],
    },
    Table {
        name: "reviews",
        rows: Rows::One,
        written_by: &[Reviewed],
        indexes: &[Field::Customer, Field::Rating, Field::Courier],
    },
];
