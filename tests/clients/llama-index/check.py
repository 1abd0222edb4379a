"""The key-value, document and index stores of LlamaIndex on Azure tables."""
import asyncio
import os
import sys

from azure.data.tables import TableServiceClient
from llama_index.core.data_structs.data_structs import IndexDict
from llama_index.core.schema import Document, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.storage.docstore.azure import AzureDocumentStore
from llama_index.storage.index_store.azure import AzureIndexStore
from llama_index.storage.kvstore.azure import AzureKVStore

import checks

CONNECTION = os.environ["CLIENT_CONNECTION"]
LONG_TEXT = "Grüße, 東京. " * 5_000     # above the 64 KiB of a property: the store splits it


def values(found):
    """What was put, of one pair or of several: the store returns it with the keys of the entity."""
    if "RowKey" not in found:
        return {key: values(value) for key, value in found.items()}
    return {name: value for name, value in found.items() if name not in ("PartitionKey", "RowKey")}


def put_get_delete():
    """kvstore: put, get, replace, delete"""
    store = AzureKVStore.from_connection_string(CONNECTION)
    store.put("a key", {"text": "Köln", "number": 7, "list": [1, {"x": None}]}, collection="first_kv")
    assert values(store.get("a key", collection="first_kv")) == {"text": "Köln", "number": 7, "list": [1, {"x": None}]}
    store.put("a key", {"text": "Bonn"}, collection="first_kv")
    assert values(store.get("a key", collection="first_kv")) == {"text": "Bonn"}
    assert store.get("another", collection="first_kv") is None
    assert store.delete("a key", collection="first_kv") is True
    assert store.get("a key", collection="first_kv") is None


def put_all():
    """kvstore: put_all in transactions of 100, get_all over all pages"""
    store = AzureKVStore.from_connection_string(CONNECTION)
    pairs = [(f"key{number:04}", {"number": number}) for number in range(1_250)]
    store.put_all(pairs, collection="many", batch_size=100)
    assert values(store.get_all(collection="many")) == dict(pairs)


def partitions():
    """kvstore: stores with other partition keys keep their own values"""
    one, two = (AzureKVStore.from_connection_string(CONNECTION, partition_key=key) for key in ("one", "two"))
    one.put("key", {"value": 1}, collection="shared")
    two.put("key", {"value": 2}, collection="shared")
    assert [values(store.get("key", collection="shared")) for store in (one, two)] == [{"value": 1}, {"value": 2}]
    # Not get_all: it passes `filter` to a method of the SDK that ignores it, so it reads every partition.
    [found] = one.query("PartitionKey eq 'one'", collection="shared")
    assert values(found) == {"value": 1}


def account_and_key():
    """kvstore: from_account_and_key with an endpoint"""
    store = AzureKVStore.from_account_and_key(os.environ["CLIENT_ACCOUNT"], os.environ["CLIENT_KEY"], os.environ["CLIENT_TABLES"])
    store.put("key", {"value": True}, collection="byKey")
    assert values(store.get("key", collection="byKey")) == {"value": True}


def asynchronous():
    """kvstore: the asynchronous methods"""
    async def use():
        store = AzureKVStore.from_connection_string(CONNECTION)
        async with store._atable_service_client:
            await store.aput("a", {"value": 1}, collection="async")
            await store.aput_all([("b", {"value": 2}), ("c", {"value": 3})], collection="async")
            assert values(await store.aget("b", collection="async")) == {"value": 2}
            assert await store.adelete("a", collection="async") is True
            assert values(await store.aget_all(collection="async")) == {"b": {"value": 2}, "c": {"value": 3}}
    asyncio.run(use())


def documents():
    """docstore: nodes of documents, hashes, references, deletion of a document"""
    store = AzureDocumentStore.from_connection_string(CONNECTION, namespace="docs")
    nodes = [TextNode(id_=f"node{number}", text=f"text {number}", metadata={"n": number},
                      relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"doc{number % 2}")}) for number in range(6)]
    store.add_documents(nodes)
    again = AzureDocumentStore.from_connection_string(CONNECTION, namespace="docs")
    assert {key: node.text for key, node in again.docs.items()} == {node.node_id: node.text for node in nodes}
    assert again.get_node("node3").metadata == {"n": 3}
    assert sorted(again.get_ref_doc_info("doc1").node_ids) == ["node1", "node3", "node5"]
    assert again.get_document_hash("node2") == nodes[2].hash
    again.set_document_hash("node2", "other")
    assert store.get_document_hash("node2") == "other"
    store.delete_ref_doc("doc1")
    assert sorted(again.docs) == ["node0", "node2", "node4"]
    assert not again.document_exists("node1")


def long_document():
    """docstore: a document that is split over several properties"""
    store = AzureDocumentStore.from_connection_string(CONNECTION, namespace="long")
    store.add_documents([Document(id_="long", text=LONG_TEXT)])
    assert store.get_document("long").text == LONG_TEXT


def indexes():
    """index store: add, read, list, delete"""
    store = AzureIndexStore.from_connection_string(CONNECTION, namespace="idx")
    first, second = IndexDict(index_id="first", nodes_dict={"a": "node1"}), IndexDict(index_id="second")
    store.add_index_struct(first)
    store.add_index_struct(second)
    again = AzureIndexStore.from_connection_string(CONNECTION, namespace="idx")
    assert again.get_index_struct("first").nodes_dict == {"a": "node1"}
    assert sorted(struct.index_id for struct in again.index_structs()) == ["first", "second"]
    again.delete_index_struct("first")
    assert [struct.index_id for struct in store.index_structs()] == ["second"]


def tables():
    """the tables that the stores have made"""
    names = {table.name for table in TableServiceClient.from_connection_string(CONNECTION).list_tables()}
    assert {"firstkv", "many", "shared", "byKey", "async"} <= names, names


if __name__ == "__main__":
    sys.exit(checks.run(put_get_delete, put_all, partitions, account_and_key, asynchronous, documents, long_document, indexes, tables))
