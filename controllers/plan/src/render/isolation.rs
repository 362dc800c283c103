//! The table of isolations of a zone.

use super::classic::table;
use crate::isolation::PLAN;

const TEXT: &str = "# Steps of an isolation of a zone

Generated from the table of `controllers/plan`; a test compares this page with it.

A [ZoneIsolation](api/zoneisolation.md) leaves a zone of a Shoot (GEP-21), and uses it again later. One table has both directions:
`IsolationEnds` waits for as long as the zone is isolated. Where the isolation is called off before that, the rows that are left of the
failover count as reached, and the failback follows at once. [Steps of a classic migration](classic-migration.md) explains the columns.

No row gives up: one that takes longer than `spec.stepTimeout` is shown as Failed in the status, and is worked on all the same.

| `phase` | `status` | what holds then |
|---|---|---|
| Failover | Pending | nothing was changed |
| Failover | InProgress | machines of other zones grow, or those of the zone end |
| Failover | Done | no machine is in the zone, and its networks are cut off |
| Failback | InProgress | networks and machines come back |
| Failback | Aborting | the same, of an isolation that was called off before the zone was isolated |
| Failback | Done | everything is as before, but for where Pods run |

";

/// The table of an isolation as Markdown.
#[must_use]
pub fn zone_isolation() -> String {
    let mut text = TEXT.to_owned();
    table(&mut text, PLAN.forward, "Failed");
    text
}
