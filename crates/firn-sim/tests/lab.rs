//! Profile `lab`, row by row.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use firn_base::seed::Seed;
use firn_pm::sim::{Mode, SimRegion};
use firndb::{Db, Environment, LabTuning, Options, Profile, Tuning};
use std::collections::BTreeMap;
use std::path::Path;

fn options(memory: &SimRegion) -> Options {
    Options {
        profile: Profile::Lab,
        pm: Some(firn_pm::PmConfig::volatile(1 << 20)),
        tuning: Tuning {
            lab: LabTuning { tree_bytes: 64 << 10, leaf_bytes: 512, ..LabTuning::default() },
            ..Tuning::default()
        },
        environment: Environment { memory: Some(memory.clone()), ..Environment::default() },
        ..Options::tiny()
    }
}

fn check(db: &Db, model: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let found: BTreeMap<Vec<u8>, Vec<u8>> =
        db.iter().unwrap().entries().map(|entry| entry.unwrap()).map(|(k, v)| (k, v.to_vec())).collect();
    assert_eq!(found.len(), model.len());
    assert!(found == *model);
    for (key, value) in model.iter().step_by(7) {
        assert_eq!(db.get(key).unwrap().as_deref(), Some(&value[..]));
    }
}

fn run(dir: &Path) {
    let memory = SimRegion::new(1 << 20, Mode::Adr);
    let mut seed = Seed::new(1);
    let mut model = BTreeMap::new();
    for round in 0..6 {
        let db = Db::open(dir, options(&memory)).unwrap();
        check(&db, &model);
        for i in 0..3000 {
            let key = format!("key{:06}", seed.below(20_000)).into_bytes();
            if seed.one_in(9) {
                db.delete(&key).unwrap();
                model.remove(&key);
            } else {
                let mut value = vec![0; 20 + seed.below(200) as usize];
                seed.fill(&mut value);
                db.put(&key, &value).unwrap();
                model.insert(key, value);
            }
            if i % 1000 == 0 {
                check(&db, &model);
            }
        }
        if round % 2 == 0 {
            db.flush().unwrap();
            db.wait_idle().unwrap();
        }
        check(&db, &model);
        let stats = db.stats();
        println!("{round}: {:?}", stats.levels);
        db.close().unwrap();
    }
}

#[test]
fn lab_holds_what_a_map_holds() {
    let dir = tempfile::tempdir().unwrap();
    run(&dir.path().join("db"));
}
