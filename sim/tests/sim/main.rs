//! The models, the simulation and short fault campaigns find nothing with every rule, and something without one. They are
//! one program, because the campaigns mostly wait while the others compute.

mod chaos;
mod models;
mod moving;
mod simulation;
