"""The patterns that the design guide for tables teaches, end to end, with the work that each may cost.

`x-rowhouse-plan` says how a query was run; a pattern that was designed to be cheap must be cheap.
"""
import threading
from datetime import datetime, timedelta, timezone

import pytest
from azure.core import MatchConditions
from azure.data.tables import TableTransactionError, UpdateMode

import raw
from helpers import Plans, entity, keys, rows


@pytest.fixture
def staff(table):
    """Employees by department; the row key is the number."""
    for department, numbers in (("Engineering", range(300, 340)), ("Marketing", range(1, 21)), ("Sales", range(100, 110))):
        table.submit_transaction([("create", entity(department, f"{n:06}", Name=f"name{n}", Age=20 + n % 40)) for n in numbers])
    return table


@pytest.mark.ours
@pytest.mark.parametrize("text, kind, examined, returned", [
    ("PartitionKey eq 'Sales' and RowKey eq '000105'", "point", 1, 1),
    ("PartitionKey eq 'Sales' and RowKey eq 'nobody'", "point", 0, 0),
    ("PartitionKey eq 'Sales' and RowKey ge '000103' and RowKey lt '000106'", "range", 3, 3),
    ("PartitionKey eq 'Sales' and RowKey ge '000103' and RowKey lt '000106' and Name eq 'name104'", "range", 3, 1),
    ("PartitionKey ge 'M' and PartitionKey lt 'N'", "range", 20, 20),
    ("PartitionKey eq 'Marketing' and Age ge 39", "partition-scan", 20, 2),
    ("PartitionKey eq 'Marketing'", "partition-scan", 20, 20),
    ("Age eq 25", "table-scan", 70, 2),
    ("RowKey eq '000105'", "table-scan", 70, 1),
    ("(PartitionKey eq 'Sales' and RowKey eq '000105') or (PartitionKey eq 'Marketing' and RowKey eq '000002')",
     "multi-point", 2, 2),
])
def test_plan_of_a_query(staff, text, kind, examined, returned):
    plans = Plans()
    found = list(staff.query_entities(text, raw_response_hook=plans))
    [(actual, fields)] = plans.seen
    assert (actual, len(found), fields["returned"]) == (kind, returned, returned)
    # A look at what comes next, to know whether a page is the last, may cost one more.
    assert examined <= fields["examined"] <= examined + 1


@pytest.mark.ours
def test_plan_of_other_reads(endpoint, staff):
    plans = Plans()
    assert len(list(staff.list_entities(raw_response_hook=plans))) == 70
    assert plans.kinds == ["table-scan"]
    lone = raw.batch(endpoint, raw.part("GET", f"{endpoint}/{staff.table_name}()?$filter=PartitionKey%20eq%20'Sales'"), wrap=False)
    assert lone.part_statuses() == [200], lone


def test_heterogeneous_entities_in_one_partition(table):
    """An employee, and the reviews of that employee, side by side and updated together."""
    table.submit_transaction([
        ("create", entity("Sales", "empl_000123", EntityType="Employee", Name="Don", ReviewCount=0)),
        ("create", entity("Sales", "review_000123_2023", EntityType="Review", ManagerRating=3, PeerRating=4.5)),
        ("create", entity("Sales", "review_000123_2024", EntityType="Review", ManagerRating=5, PeerRating=4.0)),
        ("create", entity("Sales", "empl_000124", EntityType="Employee", Name="Jun", ReviewCount=0)),
    ])
    reviews = list(table.query_entities("PartitionKey eq 'Sales' and RowKey ge 'review_000123_' and RowKey lt 'review_000123`'"))
    assert [r["ManagerRating"] for r in reviews] == [3, 5] and "Name" not in reviews[0]
    employees = list(table.query_entities("PartitionKey eq 'Sales' and EntityType eq 'Employee'"))
    assert [e["Name"] for e in employees] == ["Don", "Jun"]
    table.submit_transaction([
        ("create", entity("Sales", "review_000123_2025", EntityType="Review", ManagerRating=4)),
        ("update", entity("Sales", "empl_000123", ReviewCount=3), {"mode": UpdateMode.MERGE}),
    ])
    assert table.get_entity("Sales", "empl_000123")["ReviewCount"] == 3


def test_compound_keys_answer_by_range(table):
    """Row keys of several parts serve prefix and span queries without a scan."""
    for number in (10, 11):
        table.submit_transaction([("create", entity("Sales", f"{number:06}_{year}", Year=year)) for year in range(2018, 2026)])
    found = table.query_entities("PartitionKey eq 'Sales' and RowKey ge '000010_2020' and RowKey le '000010_2022'")
    assert rows(found) == ["000010_2020", "000010_2021", "000010_2022"]
    prefix = table.query_entities("PartitionKey eq 'Sales' and RowKey ge '000011_' and RowKey lt '000011`'")
    assert len(list(prefix)) == 8


@pytest.mark.ours
def test_compound_keys_read_no_more_than_they_return(table):
    table.submit_transaction([("create", entity("Sales", f"{n:06}_{year}")) for n in range(9) for year in range(2018, 2026)])
    plans = Plans()
    found = rows(table.query_entities("PartitionKey eq 'Sales' and RowKey ge '000003_' and RowKey lt '000003`'",
                                      raw_response_hook=plans))
    assert len(found) == 8 and plans.kinds == ["range"] and plans.examined <= 9


def test_log_tail_with_reversed_ticks(table):
    """Newest first, because the key counts down: the first page is the tail of the log."""
    far = datetime(3000, 1, 1, tzinfo=timezone.utc)
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    moments = [start + timedelta(seconds=n) for n in range(250)]
    reversed_ticks = [f"{int((far - moment).total_seconds() * 10**7):020}" for moment in moments]
    for at in range(0, 250, 100):
        table.submit_transaction([("create", entity("log", key, N=n))
                                  for n, key in list(enumerate(reversed_ticks))[at:at + 100]])
    newest = next(table.query_entities("PartitionKey eq 'log'", results_per_page=10).by_page())
    assert [e["N"] for e in newest] == list(range(249, 239, -1))
    hour_ago = f"{int((far - moments[200]).total_seconds() * 10**7):020}"
    recent = table.query_entities(f"PartitionKey eq 'log' and RowKey lt '{hour_ago}'")
    assert [e["N"] for e in recent] == list(range(249, 200, -1))


def rename(table, number, family):
    """Changes an employee's name and the index entity of both names, with a retry when somebody was faster."""
    for _ in range(100):
        employee = table.get_entity("Sales", f"empl_{number}")
        old = employee["Family"]
        operations = [("update", entity("Sales", f"empl_{number}", Family=family),
                       {"etag": employee.metadata["etag"], "match_condition": MatchConditions.IfNotModified})]
        for name, change in ((old, set.discard), (family, set.add)):
            if old == family:
                break
            found = list(table.query_entities(f"PartitionKey eq 'Sales' and RowKey eq 'family_{name}'"))
            numbers = set(filter(None, found[0]["Numbers"].split(","))) if found else set()
            change(numbers, number)
            index = entity("Sales", f"family_{name}", Numbers=",".join(sorted(numbers)))
            if found:
                operations.append(("update", index, {"etag": found[0].metadata["etag"],
                                                     "match_condition": MatchConditions.IfNotModified}))
            else:
                operations.append(("create", index))
        try:
            return table.submit_transaction(operations)
        except TableTransactionError as error:
            if error.status_code not in (409, 412):
                raise
    raise AssertionError("a hundred retries were not enough")


def test_index_entities_kept_by_a_batch(table):
    """Eight writers change names at once; index and employees agree afterwards, whatever the order was."""
    numbers, families = [f"{n:03}" for n in range(8)], ["Ash", "Birch", "Cedar"]
    table.submit_transaction([("create", entity("Sales", f"empl_{n}", Family="Ash")) for n in numbers] +
                             [("create", entity("Sales", "family_Ash", Numbers=",".join(numbers)))])
    faults = []

    def work(number):
        try:
            for step in range(6):
                rename(table, number, families[(int(number) + step) % 3])
        except Exception as fault:  # noqa: BLE001  (reported by the main thread)
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(n,)) for n in numbers]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not faults, faults
    everything = {e["RowKey"]: e for e in table.list_entities()}
    for family in families:
        wanted = ",".join(n for n in numbers if everything[f"empl_{n}"]["Family"] == family)
        assert everything[f"family_{family}"]["Numbers"] == wanted


def test_wide_entities_split_over_two_rows(table):
    """More than 252 properties, or more than 1 MiB: two rows of one partition, written together, read as a range."""
    wide = {f"p{n:03}": f"value {n}" for n in range(400)}
    halves = [dict(list(wide.items())[:200]), dict(list(wide.items())[200:])]
    table.submit_transaction([("upsert", entity("doc", f"000123_{i}", **half)) for i, half in enumerate(halves)])
    found = {}
    for part in table.query_entities("PartitionKey eq 'doc' and RowKey ge '000123_' and RowKey lt '000123`'"):
        found.update({k: v for k, v in part.items() if k not in ("PartitionKey", "RowKey")})
    assert found == wide

    heavy = {f"b{n:02}": bytes([n]) * 60000 for n in range(30)}
    halves = [dict(list(heavy.items())[:15]), dict(list(heavy.items())[15:])]
    table.submit_transaction([("upsert", entity("heavy", str(i), **half)) for i, half in enumerate(halves)])
    found = {k: v for part in table.query_entities("PartitionKey eq 'heavy'") for k, v in part.items() if k.startswith("b")}
    assert found == heavy


def test_data_series_by_merge(table):
    """One entity a day with a property an hour: each sample is a merge, and a day is one read."""
    for hour in range(24):
        table.upsert_entity(entity("sensor1", "2026-02-03", **{f"h{hour:02}": hour * 1.5}), mode=UpdateMode.MERGE)
    table.upsert_entity(entity("sensor1", "2026-02-03", h07=-1.0), mode=UpdateMode.MERGE)
    day = table.get_entity("sensor1", "2026-02-03")
    assert [day[f"h{h:02}"] for h in range(24)] == [h * 1.5 if h != 7 else -1.0 for h in range(24)]

    faults = []

    def sample(sensor):
        try:
            for hour in range(10):
                table.upsert_entity(entity("shared", "day", **{f"s{sensor}h{hour}": hour}), mode=UpdateMode.MERGE)
        except Exception as fault:  # noqa: BLE001  (reported by the main thread)
            faults.append(fault)

    threads = [threading.Thread(target=sample, args=(n,)) for n in range(5)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not faults, faults
    assert len(table.get_entity("shared", "day")) == 2 + 50


def test_counter_with_etag_retry_loses_nothing(table):
    table.create_entity(entity(N=0))
    faults = []

    def add(times):
        try:
            while times:
                found = table.get_entity("p", "r")
                try:
                    table.update_entity(entity(N=found["N"] + 1), etag=found.metadata["etag"],
                                        match_condition=MatchConditions.IfNotModified)
                    times -= 1
                except Exception as fault:  # noqa: BLE001  (anything but a lost race is reported)
                    if getattr(fault, "status_code", None) != 412:
                        raise
        except Exception as fault:  # noqa: BLE001
            faults.append(fault)

    threads = [threading.Thread(target=add, args=(25,)) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not faults and table.get_entity("p", "r")["N"] == 100


def test_a_batch_is_never_seen_half(table):
    """While batches of 20 rows replace each other, every page shows one of them."""
    def write(generation):
        table.submit_transaction([("upsert", entity(row=f"{n:02}", G=generation)) for n in range(20)])

    write(0)
    stop, faults = threading.Event(), []

    def keep_writing():
        generation = 0
        try:
            while not stop.is_set():
                generation += 1
                write(generation)
        except Exception as fault:  # noqa: BLE001  (reported by the main thread)
            faults.append(fault)

    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        for _ in range(60):
            assert len({e["G"] for e in table.query_entities("PartitionKey eq 'p'")}) == 1
    finally:
        stop.set()
        writer.join()
    assert not faults, faults


def test_order_over_partitions(staff):
    found = keys(staff.list_entities())
    assert found == sorted(found) and len(found) == 70
