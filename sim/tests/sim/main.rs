//! What the models, the simulation and short fault campaigns find: nothing with every rule, something without one. In
//! one program, because the campaigns mostly wait while the others compute.

mod chaos;
mod models;
mod moving;
mod simulation;
