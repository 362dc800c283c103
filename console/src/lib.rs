//! What operators see of migrations, and how they steer them: the commands of `kubectl repot` and its web page share it.
//!
//! | file | has |
//! |---|---|
//! | `migration.rs` | one migration as people look at it |
//! | `garden.rs` | reads and writes of the garden |
//! | `table.rs` | the rows of each mode, without the types of their flow |
//! | `durations.rs` | how long steps take, by the migrations of the past |
//! | `history.rs` | the migrations that a Shoot has been through |
//! | `moves.rs` | a move before it is asked for: plan, verdict, question, object |
//! | `preflight.rs` | whether a Shoot may move, by the rules of the webhooks |
//! | `preview.rs` | what a migration will do |
//! | `progress.rs` | where a migration stands |
//! | `timeline/` | bars of steps, as text and as SVG |
//! | `difference.rs` | two migrations beside each other |
//! | `drain/` | all Shoots of a seed go away, some at a time |
//! | `evidence/` | signed evidence of a migration, and its check |
//! | `steer/` | requests to a migration, and when they are obeyed |
//! | `objects.rs` | reads and writes of objects of any kind |
//! | `etcd/` | hosted etcds, their workflows, and requests for them |
//! | `doctor/` | whether an installation is well, and what a maintainer needs to know of it |
//! | `text.rs` | times and tables as text |
//! | `ui/` | the web page |

pub mod difference;
pub mod doctor;
pub mod drain;
pub mod durations;
pub mod etcd;
pub mod evidence;
pub mod garden;
pub mod history;
pub mod migration;
pub mod moves;
pub mod objects;
pub mod preflight;
pub mod preview;
pub mod progress;
pub mod steer;
pub mod table;
pub mod text;
pub mod timeline;
pub mod ui;
