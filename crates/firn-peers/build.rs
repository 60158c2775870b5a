//! Tells the linker where to find the engines' libraries, so that programs and tests run without
//! LD_LIBRARY_PATH.
#![forbid(unsafe_code)]

fn main() {
    println!("cargo:rerun-if-env-changed=ROCKSDB_LIB_DIR");
    if std::env::var_os("CARGO_FEATURE_ROCKSDB").is_some()
        && let Ok(directory) = std::env::var("ROCKSDB_LIB_DIR")
    {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{directory}");
    }
    if std::env::var_os("CARGO_FEATURE_LEVELDB").is_some() {
        println!("cargo:rustc-link-lib=dylib=leveldb");
    }
}
