//! The helper of this crate's tests, and the programs that try to escape.

fn main() {
    adjutant_workspace::sandbox::helper_main_if_asked();
}
