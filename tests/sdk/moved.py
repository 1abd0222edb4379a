"""Entities of every type, and what a table holds as the official SDK sees it: for tests of export, import and copy."""
import datetime
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


def canonical(value):
    """A value with its type, in a form that can be compared: NaN equals itself, and no digit of a date is lost."""
    if isinstance(value, EntityProperty) or type(value).__name__ == "EntityProperty":
        return str(value.edm_type), str(value.value)
    if isinstance(value, datetime.datetime):
        text = getattr(value, "tables_service_value", None) or value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return "DateTime", text.rstrip("Z").rstrip("0").rstrip(".")
    return type(value).__name__, repr(value)


def content(table):
    """Keys and typed properties of every entity."""
    found = {}
    for item in table.list_entities():
        properties = {name: canonical(value) for name, value in item.items() if name not in SYSTEM}
        key = item["PartitionKey"], item["RowKey"]
        assert key not in found, f"{key} twice"
        found[key] = properties
    return found
