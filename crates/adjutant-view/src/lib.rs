//! Pure folds of the event stream into what people and programs read.
