"""Several expositions as one: valid, complete, and tolerant of one that is not."""

from collections import Counter as Tally

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from edge.signals.exposition import merged

NAMES = st.sampled_from(["cohabit_a", "cohabit_b_total", "cohabit_ab", "cohabit_c_seconds"])
LABELS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
Samples = list[tuple[str, str, float]]


def text_of(samples: Samples) -> str:
    registry = CollectorRegistry()
    made: dict[str, Gauge] = {}
    for name, label, value in samples:
        gauge = made.get(name) or made.setdefault(
            name, Gauge(name, "Says,\nin two lines.", ["model"], registry=registry)
        )
        gauge.labels(label).set(value)
    return generate_latest(registry).decode()


@given(
    st.dictionaries(
        st.sampled_from(["edge", "llm", "broker"]),
        st.lists(st.tuples(NAMES, LABELS, st.floats(0, 1e9)), max_size=12),
    )
)
def test_all_samples_come_through_with_their_service(services: dict[str, Samples]) -> None:
    text = merged({name: text_of(samples) for name, samples in services.items()})
    families = list(text_string_to_metric_families(text))
    assert max(Tally(family.name for family in families).values(), default=1) == 1
    got = {
        (sample.labels["service"], sample.name, sample.labels["model"]): sample.value
        for family in families
        for sample in family.samples
    }
    wanted = {
        (service, name, label): value
        for service, samples in services.items()
        for name, label, value in samples
    }
    assert got == wanted


def test_help_and_type_are_said_once_and_first() -> None:
    registry = CollectorRegistry()
    Counter("cohabit_done", "Done.", registry=registry).inc()
    Histogram("cohabit_took_seconds", "Took.", registry=registry).observe(0.2)
    text = generate_latest(registry).decode()
    lines = merged({"a": text, "b": text}).splitlines()
    assert lines[:2] == ["# HELP cohabit_done_total Done.", "# TYPE cohabit_done_total counter"]
    assert len([line for line in lines if line.startswith("#")]) == 4
    assert lines[2:4] == [f'cohabit_done_total{{service="{name}"}} 1.0' for name in "ab"]
    (took,) = [f for f in text_string_to_metric_families("\n".join(lines)) if "took" in f.name]
    assert took.type == "histogram"
    assert [s.value for s in took.samples if s.name.endswith("_count")] == [1, 1]


def test_what_has_no_service_stays_as_it_is() -> None:
    house = '# HELP cohabit_up U.\n# TYPE cohabit_up gauge\ncohabit_up{service="llm"} 0\n'
    assert merged({}, house) == house


def test_a_label_of_that_name_is_kept_by_another() -> None:
    text = '# HELP a A.\n# TYPE a gauge\na{service="x",b="y,service=\\"z"} 1\n'
    (family,) = text_string_to_metric_families(merged({"llm": text}))
    assert family.samples[0].labels == {
        "service": "llm", "exported_service": "x", "b": 'y,service="z'
    }  # fmt: skip


def test_what_is_none_of_the_format_is_left_out() -> None:
    text = (
        "# TYPE a gauge\na 1\nnonsense\nb 2\na{ 3\n# EOF\n<html>\na NaN\n"
        "# TYPE c gauge\nother_name 4\n"
    )
    assert (
        merged({"x": text}) == '# HELP a \n# TYPE a gauge\na{service="x"} 1\na{service="x"} NaN\n'
    )


def test_a_family_of_another_type_gives_way_to_the_first() -> None:
    one, other = "# TYPE a gauge\na 1\n", "# TYPE a counter\na 2\n# TYPE b gauge\nb 3\n"
    text = merged({"new": one, "old": other})
    assert 'a{service="new"} 1\n' in text
    assert 'b{service="old"} 3\n' in text
    assert 'a{service="old"}' not in text


def test_one_process_cannot_say_endlessly_much() -> None:
    text = "# TYPE a gauge\n" + "".join(f'a{{n="{n}"}} 1\n' for n in range(60_000))
    assert merged({"x": text}).count("\n") < 50_010
