// Objects as a garden with many Shoots has them. Steps are those of the tables in docs/reference; times follow from what each step waits
// for. The same seed gives the same objects.

import { readFileSync } from "node:fs";

const DOCS = new URL("../../docs/reference/", import.meta.url);
const PAGES = { Classic: "classic-migration.md", Live: "live-migration.md", Forced: "forced-migration.md" };
const MIGRATION = { apiVersion: "migration.gardener.cloud/v1alpha1" };
const CORE = { apiVersion: "core.gardener.cloud/v1beta1" };
const NAMESPACES = ["garden-dev", "garden-prod", "garden-team-blue"];

/** Numbers that look random, from a seed. */
export function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** The rows of a table: step, side, and the steps that it waits for. */
function rows(mode, heading) {
  const text = readFileSync(new URL(PAGES[mode], DOCS), "utf8");
  const section = text.split(`\n## ${heading}\n`)[1].split("\n## ")[0];
  return section
    .split("\n")
    .filter((line) => line.startsWith("| `"))
    .map((line) => {
      const [, step, side, after] = line.split("|").map((cell) => cell.trim());
      return { step: step.replaceAll("`", ""), side, after: [...after.matchAll(/`(\w+)`/g)].map((match) => match[1]) };
    });
}

const TABLES = Object.fromEntries(Object.keys(PAGES).map((mode) => [mode, { forward: rows(mode, "Forward"), back: rows(mode, "Rollback") }]));

function iso(time) {
  return `${new Date(time).toISOString().slice(0, 19)}Z`;
}

const EVIDENCE = {
  SixMemberETCDReady: "3 members have joined the etcd of the source",
  FinalSnapshotTaken: "snapshot Full-00000000-00184467-1795842 is stored, revision 184467",
  OwnerRecordTaken: "the owner record names the destination",
  ApiDnsSwitched: "the servers of the zone answer with 192.0.2.17",
};

/** How long a step takes, in seconds. */
function length(step, next) {
  const usual = { FormerTtlExpired: 60, WatchCachesFilled: 75, StandbyFollows: 14, SixMemberETCDReady: 32, WorkersRestored: 24, NodesHealthy: 19, SourceRemoved: 28, TurnTaken: 1, SourceApiStopped: 3, ApiServes: 9 };
  return Math.max(1, Math.round((usual[step] ?? 3) * (0.6 + next() * 0.9)));
}

/** Times of the rows from a beginning on; `end` cuts what had not begun by then. */
function records(table, begin, end, next) {
  const ends = new Map();
  const all = [];
  for (const row of table) {
    const from = Math.max(begin, ...row.after.map((step) => ends.get(step) ?? begin));
    const seconds = length(row.step, next);
    const to = from + seconds * 1000;
    ends.set(row.step, to);
    if (from >= end) continue;
    const isDone = to <= end;
    const isSkipped = ["GardenletExcluded", "TunnelMoved"].includes(row.step) && next() < 0.2;
    const record = { name: row.step, attempts: 1, startTime: iso(from), state: isDone ? (isSkipped ? "Skipped" : "Succeeded") : "Running" };
    if (isDone) record.completionTime = iso(isSkipped ? from : to);
    record.reason = isDone ? "Reached" : "Waiting";
    record.message = EVIDENCE[row.step] ?? (isDone ? `seen at ${iso(to)}` : "1 of 3 is ready");
    all.push({ side: row.side, from, to, record });
  }
  return { all, last: Math.max(begin, ...ends.values()) };
}

/** A migration in a phase: `Succeeded`, `Running`, `Failed`, `RolledBack` or `Pending`. `part` says how far one is that runs. */
export function migration({ name, namespace, shoot, from, to, mode, phase, begin, part = 0.5, seed = 1 }) {
  const next = random(seed);
  const object = { ...MIGRATION, kind: "ControlPlaneMigration", metadata: { name, namespace }, spec: { shootRef: { name: shoot }, sourceSeed: from, destinationSeed: to, mode, executor: "Repot" } };
  if (phase === "Pending") return object;
  const { forward, back } = TABLES[mode];
  const whole = records(forward, begin, Infinity, random(seed)).last;
  const end = phase === "Succeeded" ? Infinity : begin + (whole - begin) * part;
  const { all } = records(forward, begin, end, next);
  if (phase === "Failed" || phase === "RolledBack") {
    const open = all.filter((one) => one.record.state === "Running");
    for (const { record } of open) Object.assign(record, { state: "Failed", completionTime: iso(end), reason: "TimedOut", message: "it was not reached in time: the members of the destination do not reach those of the source" });
    if (phase === "RolledBack") all.push(...records(back, end, Infinity, next).all);
  }
  object.status = status(all, { phase, mode, begin });
  return object;
}

function status(all, { phase, mode }) {
  const at = (step) => all.find((one) => one.record.name === step);
  const parts = {};
  for (const side of ["garden", "source", "destination"]) {
    const steps = all.filter((one) => one.side === side).map((one) => one.record);
    const sidePhase = phase === "Running" && steps.every((step) => step.state !== "Running") ? "Running" : phase;
    parts[side] = { phase: sidePhase, planVersion: 1, steps, observedTime: iso(Date.now()) };
  }
  parts.source.etcdReplicas = 3;
  if (at("SourceServes")) parts.source.ownerEpoch = 3;
  if (at("OwnerRecordTaken")) parts.destination.ownerEpoch = 4;
  if (mode === "Live") parts.source.members = [0, 1, 2].map((member) => ({ name: `etcd-main-${member}`, peerUrl: `https://m${member}.example:2380`, clientUrl: `https://m${member}.example:2379` }));
  const open = all.find((one) => one.record.state === "Running" || one.record.state === "Failed");
  const whole = { ...parts, phase, reason: open?.record.reason ?? "Reached", message: open ? `${open.side}: ${open.record.name}: ${open.record.message}` : "the destination serves" };
  if (parts.destination.ownerEpoch ?? parts.source.ownerEpoch) whole.ownerEpoch = parts.destination.ownerEpoch ?? parts.source.ownerEpoch;
  const committed = at("MoveCommitted");
  if (committed) whole.pointOfNoReturn = iso(committed.from);
  const [stopped, switched] = [at("SourceApiStopped"), at("ApiDnsSwitched")];
  if (stopped && mode === "Classic") {
    whole.apiOutage = { from: iso(stopped.from) };
    if (switched?.record.state === "Succeeded") Object.assign(whole.apiOutage, { to: iso(switched.to), seconds: Math.round((switched.to - stopped.from) / 1000) });
  }
  return whole;
}

/** Names of seeds. */
export function seedNames(count) {
  const regions = ["eu-west", "eu-north", "us-east", "ap-south"];
  return Array.from({ length: count }, (_, at) => `seed-${regions[at % regions.length]}-${Math.floor(at / regions.length) + 1}`);
}

/** Seeds as the rules want them, but for one whose gardenlet is away. */
export function seeds(names) {
  const condition = (name, type) => ({ type, status: isAway(name) && type === "GardenletReady" ? "False" : "True", reason: "Reported", message: "" });
  return names.map((name) => ({
    ...CORE,
    kind: "Seed",
    metadata: { name },
    spec: { provider: { type: "local", region: name.replace(/^seed-|-\d+$/g, "") }, backup: { provider: "local" } },
    status: {
      observedGeneration: 1,
      gardener: { version: "v1.130.0" },
      conditions: ["GardenletReady", "SeedSystemComponentsHealthy", "BackupBucketsReady"].map((type) => condition(name, type)),
    },
  }));
}

/** Whether the gardenlet of a seed is away. */
export function isAway(name) {
  return name === "seed-eu-north-2";
}

/** Shoots on these seeds. */
export function shoots(count, names, seed = 7) {
  const next = random(seed);
  return Array.from({ length: count }, (_, at) => {
    const name = `shoot-${String(at).padStart(4, "0")}`;
    const seedName = names[Math.floor(next() ** 1.4 * names.length)];
    const isBroken = next() < 0.03;
    return {
      ...CORE,
      kind: "Shoot",
      metadata: { name, namespace: NAMESPACES[at % NAMESPACES.length] },
      spec: { seedName, region: seedName.replace(/^seed-|-\d+$/g, ""), provider: { type: "local" }, kubernetes: { version: next() < 0.5 ? "1.33.4" : "1.32.8" } },
      status: {
        seedName,
        technicalID: `shoot--${at % 3}--${name}`,
        hibernated: next() < 0.06,
        lastOperation: { type: "Reconcile", state: isBroken ? "Error" : "Succeeded", progress: isBroken ? 62 : 100, description: isBroken ? "the API server is not reached" : "Shoot cluster has been successfully reconciled." },
        conditions: isBroken ? [{ type: "APIServerAvailable", status: "False", reason: "HealthzRequestFailed", message: "no answer" }] : [],
      },
    };
  });
}

const KINDS = [["Classic", "Succeeded"], ["Live", "Succeeded"], ["Classic", "Succeeded"], ["Forced", "Succeeded"], ["Classic", "RolledBack"], ["Live", "Failed"], ["Classic", "Running"], ["Live", "Running"], ["Live", "Succeeded"], ["Classic", "Pending"]];

/** Many migrations of the first Shoots, the last of which run. */
export function migrations(count, names, ofShoots = []) {
  const now = Date.now();
  return Array.from({ length: count }, (_, at) => {
    const [mode, phase] = KINDS[at % KINDS.length];
    const shoot = ofShoots[at];
    const from = shoot?.spec.seedName ?? names[at % names.length];
    const to = names[(names.indexOf(from) + 1 + (at % (names.length - 1))) % names.length];
    const hours = phase === "Running" ? 0.02 + (at % 7) * 0.004 : 1 + at * 0.7;
    const name = shoot?.metadata.name ?? `shoot-${String(at).padStart(4, "0")}`;
    const namespace = shoot?.metadata.namespace ?? NAMESPACES[at % NAMESPACES.length];
    return migration({ name: `${name}-move`, namespace, shoot: name, from, to, mode, phase, begin: now - hours * 3600e3, part: 0.25 + (at % 5) * 0.15, seed: at + 1 });
  });
}

/** Isolations of zones. */
export function isolations(ofShoots) {
  return ofShoots.map(([namespace, shoot], at) => {
    const step = (name, state) => ({ name, state, reason: "Reached", message: `seen in zone euc1-az${(at % 3) + 1}`, attempts: 1, startTime: iso(Date.now() - 900e3), ...(state === "Succeeded" ? { completionTime: iso(Date.now() - 870e3) } : {}) });
    return {
      ...MIGRATION,
      kind: "ZoneIsolation",
      metadata: { name: `${shoot}-zone`, namespace },
      spec: { shootRef: { name: shoot }, isolatedZoneID: `euc1-az${(at % 3) + 1}` },
      status: {
        phase: "Failover",
        status: at % 2 ? "InProgress" : "Done",
        message: at % 2 ? "machines are drained" : "the zone is isolated",
        isolatedZoneCode: "eu-central-1a",
        seedName: "seed-eu-west-1",
        garden: { phase: "Running", steps: [step("TurnTaken", "Succeeded")] },
        seed: { phase: "Running", steps: [step("MachinesDrained", at % 2 ? "Running" : "Succeeded")] },
      },
    };
  });
}

/** Hosted etcds, their backups and a restore. */
export function etcds(count) {
  const hosted = [];
  const backups = [];
  for (let at = 0; at < count; at += 1) {
    const namespace = NAMESPACES[at % NAMESPACES.length];
    const name = `etcd-${at}`;
    const store = { provider: "S3", container: "backups", prefix: `etcds/${name}`, secretRef: { name: "store" } };
    hosted.push({
      ...MIGRATION,
      kind: "HostedEtcd",
      metadata: { name, namespace },
      spec: { etcdRef: { name }, apiServerRef: { name: "kube-apiserver" }, settings: { replicas: 3, size: "25Gi" }, backupStore: store },
      status: { lifecycleStatus: "running", readyReplicas: at % 9 === 4 ? 2 : 3 },
    });
    backups.push({
      ...MIGRATION,
      kind: "EtcdBackup",
      metadata: { name: `${name}-daily`, namespace },
      spec: { clusterRef: { name }, schedule: "@daily" },
      status: { phase: "Scheduled", lastSuccessfulTime: iso(Date.now() - 3600e3 * (1 + at)), nextScheduleTime: iso(Date.now() + 3600e3), sizeBytes: 1e6 * (at + 3), revision: 1000 + at, steps: [] },
    });
  }
  return { hosted, backups };
}
