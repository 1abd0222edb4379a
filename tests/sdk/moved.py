"""Entities of every type, and what a table holds as the official SDK sees it: for tests of export, import and copy."""
import base64
import datetime
import json
import math
import uuid

from azure.data.tables import EdmType, EntityProperty

SYSTEM = {"PartitionKey", "RowKey"}


def entity(number, partitions=20):
    """The same number is the same entity, with every type among them."""
    values = {
        "PartitionKey": f"region-{number % partitions:03}", "RowKey": f"{number:08}",
        "Text": ("", "it's, \"quoted\"\r\nand more", "é😀", " blanks ")[number % 4],
        "Int32": number - 5, "Int64": EntityProperty(2**62 + number, EdmType.INT64),
        "Double": (1.0, float("nan"), float("inf"), 1e300, 0.1)[number % 5],
        "Boolean": number % 2 == 0, "Guid": uuid.UUID(int=number), "Binary": number.to_bytes(4, "big")[number % 4:],
        "When": datetime.datetime(2020, 1, 2, 3, 4, 5, number % 1_000_000, datetime.timezone.utc),
    }
    if number % 3 == 0:
        values["Sometimes"] = str(number)
    return values


def batches(count, partitions=20):
    """All entities up to the number, in lists that each fit one transaction."""
    for partition in range(partitions):
        numbers = range(partition, count, partitions)
        for at in range(0, len(numbers), 100):
            yield [entity(number, partitions) for number in numbers[at:at + 100]]


def line(values):
    """An entity as one line of NDJSON, as the protocol writes it."""
    members = {}
    for name, value in values.items():
        edm, text = annotated(value)
        if edm:
            members[f"{name}@odata.type"] = f"Edm.{edm}"
        members[name] = text
    return json.dumps(members, ensure_ascii=False) + "\n"


def annotated(value):
    """The type that has to be said, if any, and the value as JSON has it."""
    if isinstance(value, EntityProperty) or type(value).__name__ == "EntityProperty":
        return "Int64", str(value.value)
    if isinstance(value, float):
        return "Double", value if math.isfinite(value) else {"nan": "NaN", "inf": "Infinity"}[repr(value)]
    if isinstance(value, uuid.UUID):
        return "Guid", str(value)
    if isinstance(value, bytes):
        return "Binary", base64.b64encode(value).decode()
    if isinstance(value, datetime.datetime):
        return "DateTime", value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return None, value


def canonical(value):
    """A value with its type, in a form that can be compared: NaN equals itself, and no digit of a date is lost."""
    if isinstance(value, EntityProperty) or type(value).__name__ == "EntityProperty":
        return str(value.edm_type), str(value.value)
    if isinstance(value, datetime.datetime):
        text = getattr(value, "tables_service_value", None) or value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return "DateTime", text.rstrip("Z").rstrip("0").rstrip(".")
    return type(value).__name__, repr(value)


def typed(item):
    """The properties of an entity, with their types."""
    return {name: canonical(value) for name, value in item.items() if name not in SYSTEM}


def differences(table, count, partitions=20):
    """Reads every entity and yields what is not as `entity` made it: the first of each kind is enough to know. Holds none of
    them, and asks for one partition after the other, because some servers sort all that a query matches for each page."""
    names = [f"region-{partition:03}" for partition in range(partitions)]
    for item in table.query_entities(f"PartitionKey lt '{names[0]}' or PartitionKey gt '{names[-1]}'"):
        yield f"{item['PartitionKey']} {item['RowKey']} should not be there"
    for partition, name in enumerate(names):
        due = iter(range(partition, count, partitions))
        for item in table.query_entities(f"PartitionKey eq '{name}'"):
            number = next(due, None)
            if number is None or item["RowKey"] != f"{number:08}":
                yield f"{name} {item['RowKey']} is there instead of {number}"
                break
            expected = typed(entity(number, partitions))
            if typed(item) != expected:
                yield f"{name} {item['RowKey']} is {typed(item)} instead of {expected}"
        yield from (f"{name} {number:08} is missing" for number in due)


def content(table):
    """Keys and typed properties of every entity."""
    found = {}
    for item in table.list_entities():
        properties = typed(item)
        key = item["PartitionKey"], item["RowKey"]
        assert key not in found, f"{key} twice"
        found[key] = properties
    return found
