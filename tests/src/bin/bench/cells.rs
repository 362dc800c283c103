//! What is measured: an operation on objects of a size, and who takes part.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use repot_tests::states::Payload;
use reqwest::Method;

use crate::body::{Body, name};
use crate::load::{Limit, Shot, Shots};
use crate::servers::Side::{self, Aggregated, ConfigMap, Crd, Direct, Earlier, Null, SameEtcd};

/// Namespaces of the objects: listed, read one by one, and created.
pub const RESIDENT: &str = "resident";
/// The namespace of objects that are read one by one; see [`RESIDENT`].
pub const READ: &str = "read";
/// The namespace of objects that are created; see [`RESIDENT`].
pub const WRITTEN: &str = "written";
/// Objects of each kind that are read, so that no single one is all that a server has to remember.
pub const READ_OBJECTS: u64 = 8;

const JSON: &str = "application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
const MB: usize = 1_000_000;
/// Of twenty requests of a mix, so many create an object and so many replace a part of one; the others read.
const CREATE_OF_20: u64 = 1;
const PATCH_OF_20: u64 = 3;
/// Requests in a round of those that arrive by themselves.
const LEAST_ARRIVALS: f64 = 30.0;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operation {
    /// GET of one object.
    Get(Kind),
    /// POST of one object.
    Create(Kind),
    /// 80 % GET, 15 % merge PATCH of an annotation, 5 % POST.
    Mix(Kind),
    /// LIST of all resident objects.
    List(Form),
}

/// The objects that a cell works on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kind {
    /// Bytes of JSON of one object.
    pub bytes: usize,
    /// What they consist of.
    pub payload: Payload,
}

/// How a LIST is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    /// All of every object, as new as the request.
    Full,
    /// All of every object, as old as the server likes (`resourceVersion=0`).
    FullOfAnyAge,
    /// Metadata only.
    Metadata,
    /// What kubectl prints.
    Table,
}

/// One row of the benchmark, without its measurements.
#[derive(Clone, Debug)]
pub struct Cell {
    /// What each request of the cell does.
    pub operation: Operation,
    /// Who takes part, in the order of the first round.
    pub sides: Vec<Side>,
    /// How many requests run at once.
    pub connections: usize,
    /// How long a round of one side takes at least.
    pub time: Duration,
    /// Requests of a connection in a round.
    pub requests: usize,
    /// How often the cell is repeated.
    pub rounds: usize,
    /// Where requests come at a rate of their own, whatever became of those before: so many a second.
    pub arrivals: Option<f64>,
}

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Connections where it matters.
    pub connections: usize,
    /// Time of a round.
    pub time: Duration,
    /// Rounds of a cell.
    pub rounds: usize,
}

impl Kind {
    /// The kinds of objects that all sides take.
    pub const COMMON: [Self; 4] = [
        Self { bytes: MB / 10, payload: Payload::Realistic },
        Self { bytes: MB / 10, payload: Payload::Incompressible },
        Self { bytes: MB, payload: Payload::Realistic },
        Self { bytes: MB, payload: Payload::Incompressible },
    ];
    /// Those too large for a CRD.
    pub const LARGE: [Self; 3] = [
        Self { bytes: 10 * MB, payload: Payload::Realistic },
        Self { bytes: 10 * MB, payload: Payload::Incompressible },
        Self { bytes: 30 * MB, payload: Payload::Realistic },
    ];
    /// Those smaller than what Gardener writes.
    pub const SMALL: [Self; 2] = [
        Self { bytes: 1_000, payload: Payload::Incompressible },
        Self { bytes: 9_000, payload: Payload::Incompressible },
    ];

    /// The name of the kind in tables.
    pub fn name(self) -> String {
        let size = if self.bytes < MB {
            format!("{} KB", self.bytes / 1000)
        } else {
            format!("{} MB", self.bytes / MB)
        };
        let payload = match self.payload {
            Payload::Realistic => "realistic",
            Payload::Compressible => "compressible",
            Payload::Incompressible => "incompressible",
        };
        format!("{size} {payload}")
    }

    /// The number of the first object of this kind that is read.
    pub fn first_number(self) -> u64 {
        let all = Self::COMMON.iter().chain(&Self::LARGE).chain(&Self::SMALL);
        all.take_while(|&&kind| kind != self).count() as u64 * READ_OBJECTS
    }
}

impl Cell {
    /// For tables and for `--only`.
    pub fn name(&self) -> String {
        let what = match self.operation {
            Operation::Get(kind) => format!("GET {}", kind.name()),
            Operation::Create(kind) => format!("POST {}", kind.name()),
            Operation::Mix(kind) => format!("MIX {}", kind.name()),
            Operation::List(Form::Full) => "LIST full".to_owned(),
            Operation::List(Form::FullOfAnyAge) => "LIST full, resourceVersion=0".to_owned(),
            Operation::List(Form::Metadata) => "LIST metadata".to_owned(),
            Operation::List(Form::Table) => "LIST Table".to_owned(),
        };
        match self.arrivals {
            None => format!("{what}, c={}", self.connections),
            Some(rate) => format!("{what}, {rate:.1} arrive a second"),
        }
    }

    /// Whether requests of this cell are also let in at a rate of their own, to see how long each of them takes then.
    pub fn arrives(&self) -> bool {
        let kind = match self.operation {
            Operation::Get(kind) | Operation::Create(kind) => kind.payload == Payload::Realistic,
            Operation::Mix(_) => true,
            Operation::List(_) => false,
        };
        kind && self.sides.contains(&Crd) && matches!(self.connections, 8 | 16)
    }

    /// The same requests, so many a second, for as long as it takes until enough of them came.
    pub fn at(&self, rate: f64) -> Self {
        let time = (self.time * 2).max(Duration::from_secs_f64(LEAST_ARRIVALS / rate));
        Self { arrivals: Some(rate), time, ..self.clone() }
    }

    /// The same requests, to an earlier Repot as well.
    pub fn beside_earlier(mut self) -> Self {
        if let Some(at) = self.sides.iter().position(|side| *side == Direct) {
            self.sides.insert(at + 1, Earlier);
        }
        self
    }

    /// The load of one round.
    pub fn limit(&self) -> Limit {
        Limit { connections: self.connections, time: self.time, requests: self.requests }
    }

    /// The requests of a side; `listed` is the length of the LIST, for the null server to answer as much.
    pub fn shots(&self, side: Side, listed: usize) -> Result<Shots> {
        Ok(match self.operation {
            Operation::Get(kind) => read(side, kind),
            Operation::Create(kind) => create(side, kind)?,
            Operation::Mix(kind) => mix(side, kind)?,
            Operation::List(form) => list(side, form, listed),
        })
    }
}

/// All cells, in the order of the report.
pub fn all(scale: Scale) -> Vec<Cell> {
    let Scale { connections, time, rounds } = scale;
    let everybody = vec![Direct, SameEtcd, Aggregated, Crd, Null];
    let cell = |operation, sides: &[Side], connections| Cell {
        operation,
        sides: sides.to_vec(),
        connections,
        time,
        requests: usize::MAX,
        rounds,
        arrivals: None,
    };
    let mut cells = Vec::new();
    for make in [Operation::Get, Operation::Create] {
        cells.extend(Kind::COMMON.iter().map(|&kind| cell(make(kind), &everybody, connections)));
        cells.push(cell(make(Kind::COMMON[2]), &everybody, 1));
    }
    cells.push(cell(Operation::Get(Kind::COMMON[2]), &[Direct, SameEtcd, Crd], 64));
    cells.push(cell(Operation::Get(Kind::COMMON[2]), &[Direct, ConfigMap], 1));
    for kind in Kind::SMALL {
        cells.extend([1, 16].map(|many| cell(Operation::Mix(kind), &[Direct, SameEtcd, Crd], many)));
    }
    for form in [Form::Metadata, Form::Table] {
        cells.push(cell(Operation::List(form), &everybody, 1));
    }
    cells.push(cell(Operation::List(Form::Full), &everybody, 1));
    cells.push(cell(Operation::List(Form::FullOfAnyAge), &[Direct, SameEtcd, Aggregated, Crd], 1));
    for make in [Operation::Create, Operation::Get] {
        cells.extend(
            Kind::LARGE.iter().map(|&kind| cell(make(kind), &[Direct, SameEtcd, Aggregated, Null], 1)),
        );
    }
    cells
}

/// A full LIST by several clients at once: one request of each, and as few rounds as show how it varies.
pub fn lists_at_once(clients: usize, rounds: usize) -> Cell {
    Cell {
        operation: Operation::List(Form::Full),
        sides: vec![Direct, SameEtcd, Aggregated, Crd],
        connections: clients,
        time: Duration::ZERO,
        requests: 1,
        rounds,
        arrivals: None,
    }
}

fn get(path: String, accept: &'static str) -> Shot {
    Shot { method: Method::GET, path, accept, body: None }
}

fn read(side: Side, kind: Kind) -> Shots {
    let (collection, first) = (side.collection(READ), kind.first_number());
    Arc::new(move |number| match side {
        Null => get(format!("{collection}/{}", kind.bytes), JSON),
        Direct | Earlier | SameEtcd | Aggregated | Crd | ConfigMap => {
            get(format!("{collection}/{}", name(first + number % READ_OBJECTS)), JSON)
        }
    })
}

fn create(side: Side, kind: Kind) -> Result<Shots> {
    let body = Body::generate(side, WRITTEN, kind.bytes, kind.payload, 7)?;
    let collection = side.collection(WRITTEN);
    // What comes back from a create is the object.
    Ok(create_in(if side == Null { format!("{collection}/echo") } else { collection }, body))
}

fn mix(side: Side, kind: Kind) -> Result<Shots> {
    let (reads, creates, collection) = (read(side, kind), create(side, kind)?, side.collection(READ));
    Ok(Arc::new(move |number| match number % 20 {
        at if at < CREATE_OF_20 => creates(number),
        at if at < CREATE_OF_20 + PATCH_OF_20 => Shot {
            method: Method::PATCH,
            path: format!("{collection}/{}", name(kind.first_number() + number % READ_OBJECTS)),
            accept: JSON,
            body: Some(format!(r#"{{"metadata":{{"annotations":{{"n":"{number}"}}}}}}"#).into()),
        },
        _ => reads(number),
    }))
}

/// Requests that create an object under each number.
pub fn create_in(collection: String, body: Body) -> Shots {
    Arc::new(move |number| Shot {
        method: Method::POST,
        path: collection.clone(),
        accept: JSON,
        body: Some(body.with(number)),
    })
}

/// Requests that delete what [`create_in`] created.
pub fn delete_from(collection: String) -> Shots {
    Arc::new(move |number| Shot {
        method: Method::DELETE,
        path: format!("{collection}/{}", name(number)),
        accept: JSON,
        body: None,
    })
}

fn list(side: Side, form: Form, listed: usize) -> Shots {
    let collection = side.collection(RESIDENT);
    let (path, accept) = match (side, form) {
        (Null, _) => (format!("{collection}/{listed}"), JSON),
        (_, Form::Full) => (collection, JSON),
        (_, Form::FullOfAnyAge) => (format!("{collection}?resourceVersion=0"), JSON),
        (_, Form::Metadata) => (collection, METADATA),
        (_, Form::Table) => (collection, TABLE),
    };
    Arc::new(move |_| get(path.clone(), accept))
}
