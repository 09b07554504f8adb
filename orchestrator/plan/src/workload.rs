//! Workloads: by profile name, by profile with fields of its own, or inline; and the profile files themselves.

use crate::decode::{
    BOOLEAN, Choice, Count, Decimal, Fields, Name, Refusal, Rule, Seconds, Size, Text, WholeNumber, list, value,
};
use crate::limits;
use crate::model::{AccessPattern, OnError, Rate, RateIops, RegionRange, Workload};
use crate::problem::{Place, Problems, Reported, excerpt, nearest};
use crate::profiles::{Profile, Profiles};
use crate::yaml::{Kind, Node};

/// Fields of a workload in a plan.
const FIELDS: [&str; 16] = [
    "name",
    "profile",
    "block",
    "pattern",
    "streams",
    "hot_spot",
    "range",
    "align",
    "read_percent",
    "outstanding_per_disk",
    "rate",
    "compression_ratio",
    "duplication_ratio",
    "flush_every_writes",
    "on_error",
    "stall_threshold",
];

/// Stall threshold where a workload names none, seconds.
const DEFAULT_STALL_SECONDS: u32 = 1;

/// Fields that a profile file has besides a workload's, and the one that it has not.
const DESCRIPTION: &str = "description";
const PROFILE: &str = "profile";

/// Longest description of a profile, characters.
const DESCRIPTION_CHARS: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatternKind {
    Random,
    Sequential,
    Permutation,
    HotSpot,
}

const PATTERNS: Choice<'static, PatternKind> = Choice(&[
    ("random", PatternKind::Random),
    ("sequential", PatternKind::Sequential),
    ("permutation", PatternKind::Permutation),
    ("hot-spot", PatternKind::HotSpot),
]);

/// A workload with the places that checks across the plan point at.
#[derive(Debug)]
pub(crate) struct PlacedWorkload {
    pub(crate) workload: Workload,
    pub(crate) path: String,
    pub(crate) name_place: Place,
    pub(crate) block_place: Place,
    pub(crate) outstanding_place: Place,
}

/// Reads one entry of `workloads`. `set` is where a profile without a set is looked for.
pub(crate) fn read(
    node: &Node,
    path: &str,
    set: &str,
    profiles: &Profiles,
    problems: &mut Problems,
) -> Result<PlacedWorkload, Reported> {
    if let Kind::Scalar(reference) = &node.kind {
        let workload = find(reference, set, profiles, node, path, problems)?.workload.clone();
        let (name_place, block_place, outstanding_place) = (node.place, node.place, node.place);
        return Ok(PlacedWorkload { workload, path: path.to_owned(), name_place, block_place, outstanding_place });
    }
    let fields = Fields::of(node, path, &FIELDS, problems)?;
    let base =
        fields.node(PROFILE).map(|node| base(node, &fields.path_of(PROFILE), set, profiles, problems)).transpose()?;
    Ok(PlacedWorkload {
        workload: workload(&fields, base, problems)?,
        path: path.to_owned(),
        name_place: fields.place_of("name"),
        block_place: fields.place_of("block"),
        outstanding_place: fields.place_of("outstanding_per_disk"),
    })
}

/// Reads a profile file's content.
pub(crate) fn read_profile(node: &Node, set: &str, problems: &mut Problems) -> Result<Profile, Reported> {
    let mut names: Vec<&str> = FIELDS.into_iter().filter(|name| *name != PROFILE).collect();
    names.push(DESCRIPTION);
    let fields = Fields::of(node, "", &names, problems)?;
    let description = fields.required(DESCRIPTION, &Text(1..=DESCRIPTION_CHARS), problems);
    let mut workload = workload(&fields, None, problems)?;
    let id = format!("{set}/{}", workload.name);
    workload.profile = Some(id.clone());
    Ok(Profile { id, description: description?, workload })
}

fn base<'p>(
    node: &Node,
    path: &str,
    set: &str,
    profiles: &'p Profiles,
    problems: &mut Problems,
) -> Result<&'p Workload, Reported> {
    let reference = value(&Text(limits::NAME_CHARS), node, path, problems)?;
    Ok(&find(&reference, set, profiles, node, path, problems)?.workload)
}

fn find<'p>(
    reference: &str,
    set: &str,
    profiles: &'p Profiles,
    node: &Node,
    path: &str,
    problems: &mut Problems,
) -> Result<&'p Profile, Reported> {
    let in_set = format!("{set}/");
    let (id, shared) =
        if reference.contains('/') { (reference.to_owned(), "") } else { (format!("{in_set}{reference}"), &*in_set) };
    profiles.get(&id).ok_or_else(|| {
        let suggestion = nearest(reference, profiles.ids().filter_map(|id| id.strip_prefix(shared)));
        let found = format!("the unknown profile {}", excerpt(reference));
        problems.add(node.place, path, found, list(profiles.ids()), suggestion)
    })
}

fn workload(fields: &Fields<'_>, base: Option<&Workload>, problems: &mut Problems) -> Result<Workload, Reported> {
    let block_rule = Size { range: limits::BLOCK_BYTES, step: limits::BLOCK_STEP };
    let name =
        given_or(fields, "name", &Name(limits::WORKLOAD_NAME_CHARS), base.map(|base| base.name.clone()), problems);
    let block_bytes = given_or(fields, "block", &block_rule, base.map(|base| base.block_bytes), problems);
    let pattern = pattern(fields, base.map(|base| base.pattern), problems);
    let read_percent =
        given_or(fields, "read_percent", &Count(limits::READ_PERCENT), base.map(|base| base.read_percent), problems);
    let outstanding = base.map(|base| base.outstanding_per_disk);
    let outstanding = given_or(fields, "outstanding_per_disk", &Count(limits::OUTSTANDING), outstanding, problems);
    let range = range(fields, problems);
    let align_bytes = fields.optional("align", &block_rule, problems);
    let rate = rate(fields, problems);
    let compression_ratio = ratio(fields, "compression_ratio", base.map(|base| base.compression_ratio), problems);
    let duplication_ratio = ratio(fields, "duplication_ratio", base.map(|base| base.duplication_ratio), problems);
    let flush_every_writes = fields.optional("flush_every_writes", &Count(limits::FLUSH_EVERY_WRITES), problems);
    let on_error = base.map_or(OnError::Stop, |base| base.on_error);
    let on_error = given_or(fields, "on_error", &ErrorPolicy, Some(on_error), problems);
    let stall_seconds = base.map_or(DEFAULT_STALL_SECONDS, |base| base.stall_seconds);
    let stall_seconds =
        given_or(fields, "stall_threshold", &Seconds(limits::STALL_SECONDS), Some(stall_seconds), problems);
    Ok(Workload {
        name: name?,
        profile: base.and_then(|base| base.profile.clone()),
        block_bytes: block_bytes?,
        pattern: pattern?,
        range: range?.or_else(|| base.and_then(|base| base.range)),
        align_bytes: align_bytes?.or_else(|| base.and_then(|base| base.align_bytes)),
        read_percent: read_percent?,
        outstanding_per_disk: outstanding?,
        rate: rate?.or_else(|| base.and_then(|base| base.rate)),
        compression_ratio: compression_ratio?,
        duplication_ratio: duplication_ratio?,
        flush_every_writes: flush_every_writes?.or_else(|| base.and_then(|base| base.flush_every_writes)),
        on_error: on_error?,
        stall_seconds: stall_seconds?,
    })
}

/// The field's value, else the fallback; without a fallback the field must be there.
fn given_or<R: Rule>(
    fields: &Fields<'_>,
    name: &str,
    rule: &R,
    fallback: Option<R::Value>,
    problems: &mut Problems,
) -> Result<R::Value, Reported> {
    match fallback {
        Some(fallback) => Ok(fields.optional(name, rule, problems)?.unwrap_or(fallback)),
        None => fields.required(name, rule, problems),
    }
}

fn ratio(fields: &Fields<'_>, name: &str, base: Option<f64>, problems: &mut Problems) -> Result<f64, Reported> {
    given_or(fields, name, &Decimal(limits::RATIO), Some(base.unwrap_or(1.0)), problems)
}

fn rate(fields: &Fields<'_>, problems: &mut Problems) -> Result<Option<Rate>, Reported> {
    const PER_DISK: &str = "iops_per_disk";
    const PER_WORKER: &str = "iops_per_worker";
    let Some(node) = fields.node("rate") else { return Ok(None) };
    let path = fields.path_of("rate");
    let fields = Fields::of(node, &path, &[PER_DISK, PER_WORKER, "poisson"], problems)?;
    let per_disk = fields.optional(PER_DISK, &Decimal(limits::IOPS_PER_DISK), problems);
    let per_worker = fields.optional(PER_WORKER, &Decimal(limits::IOPS_PER_WORKER), problems);
    let poisson = fields.optional("poisson", &BOOLEAN, problems);
    let iops = match (per_disk?, per_worker?) {
        (Some(iops), None) => RateIops::IopsPerDisk(iops),
        (None, Some(iops)) => RateIops::IopsPerWorker(iops),
        (given, _) => {
            let found = if given.is_some() { "both" } else { "neither" };
            let found = format!("{found} of {PER_DISK} and {PER_WORKER}");
            return Err(problems.add(fields.place, &path, found, "exactly one of the two", None));
        }
    };
    Ok(Some(Rate { iops, poisson: poisson?.unwrap_or(false) }))
}

fn range(fields: &Fields<'_>, problems: &mut Problems) -> Result<Option<RegionRange>, Reported> {
    let Some(node) = fields.node("range") else { return Ok(None) };
    let path = fields.path_of("range");
    let fields = Fields::of(node, &path, &["from_percent", "to_percent"], problems)?;
    let from = given_or(&fields, "from_percent", &Decimal(limits::RANGE_PERCENT), Some(0.0), problems);
    let to = given_or(&fields, "to_percent", &Decimal(limits::RANGE_PERCENT), Some(100.0), problems);
    let range = RegionRange { from_percent: from?, to_percent: to? };
    if range.from_percent >= range.to_percent {
        let found = format!("{} % to {} %", range.from_percent, range.to_percent);
        return Err(problems.add(fields.place, &path, found, "from_percent below to_percent", None));
    }
    Ok(Some(range))
}

/// `stop`, `continue`, `stop-after-N`.
struct ErrorPolicy;

impl Rule for ErrorPolicy {
    type Value = OnError;

    fn allowed(&self) -> String {
        let (least, most) = (limits::ERRORS.start(), limits::ERRORS.end());
        format!("stop, continue or stop-after-N with N errors, {least} to {most}")
    }

    fn read(&self, text: &str) -> Result<OnError, Refusal> {
        match text.strip_prefix("stop-after-") {
            Some(errors) => {
                let errors = WholeNumber(limits::ERRORS).read(errors)?;
                let errors = u32::try_from(errors).map_err(|_| Refusal::default())?;
                Ok(OnError::StopAfter { errors })
            }
            None => Choice(&[("stop", OnError::Stop), ("continue", OnError::Continue)]).read(text),
        }
    }
}

fn pattern(
    fields: &Fields<'_>,
    base: Option<AccessPattern>,
    problems: &mut Problems,
) -> Result<AccessPattern, Reported> {
    let kind = given_or(fields, "pattern", &PATTERNS, base.map(kind_of), problems);
    let streams = fields.optional("streams", &Count(limits::STREAMS), problems);
    let hot_spot = hot_spot(fields, problems);
    let kind = kind?;
    only_with(fields, "streams", kind == PatternKind::Sequential, "pattern: sequential", problems)?;
    only_with(fields, "hot_spot", kind == PatternKind::HotSpot, "pattern: hot-spot", problems)?;
    match kind {
        PatternKind::Random => Ok(AccessPattern::Random),
        PatternKind::Permutation => Ok(AccessPattern::Permutation),
        PatternKind::Sequential => Ok(AccessPattern::Sequential { streams: streams?.unwrap_or(base_streams(base)) }),
        PatternKind::HotSpot => match (hot_spot?, base) {
            (Some(given), _) | (None, Some(given @ AccessPattern::HotSpot { .. })) => Ok(given),
            (None, _) => Err(missing_hot_spot(fields, problems)),
        },
    }
}

fn kind_of(pattern: AccessPattern) -> PatternKind {
    match pattern {
        AccessPattern::Random => PatternKind::Random,
        AccessPattern::Sequential { .. } => PatternKind::Sequential,
        AccessPattern::Permutation => PatternKind::Permutation,
        AccessPattern::HotSpot { .. } => PatternKind::HotSpot,
    }
}

fn base_streams(base: Option<AccessPattern>) -> u32 {
    match base {
        Some(AccessPattern::Sequential { streams }) => streams,
        _ => 1,
    }
}

fn hot_spot(fields: &Fields<'_>, problems: &mut Problems) -> Result<Option<AccessPattern>, Reported> {
    let Some(node) = fields.node("hot_spot") else { return Ok(None) };
    let fields = Fields::of(node, &fields.path_of("hot_spot"), &["io_percent", "space_percent"], problems)?;
    let io_percent = fields.required("io_percent", &Decimal(limits::HOT_SPOT_IO_PERCENT), problems);
    let space_percent = fields.required("space_percent", &Decimal(limits::HOT_SPOT_SPACE_PERCENT), problems);
    Ok(Some(AccessPattern::HotSpot { io_percent: io_percent?, space_percent: space_percent? }))
}

fn missing_hot_spot(fields: &Fields<'_>, problems: &mut Problems) -> Reported {
    let allowed = "{io_percent: …, space_percent: …}, which pattern: hot-spot needs";
    problems.add(fields.place, &fields.path_of("hot_spot"), "nothing", allowed, None)
}

/// Reports a field that has no meaning beside the others.
fn only_with(fields: &Fields<'_>, name: &str, fits: bool, with: &str, problems: &mut Problems) -> Result<(), Reported> {
    match fields.node(name) {
        Some(node) if !fits => {
            let allowed = format!("only with {with}");
            Err(problems.add(node.place, &fields.path_of(name), node.found(), allowed, None))
        }
        _ => Ok(()),
    }
}
