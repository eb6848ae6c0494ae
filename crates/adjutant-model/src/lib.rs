//! The Model trait and the models behind it; for now the scripted one.
