//! The process killed by suite kill9.
#![forbid(unsafe_code)]

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    firn_sim::kill9_child(&arguments);
}
