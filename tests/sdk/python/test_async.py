"""The asynchronous client: another HTTP library below, which writes and signs addresses in its own way."""
import asyncio

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.data.tables.aio import TableServiceClient

from helpers import entity


@pytest.mark.parametrize("key", ["", "plain", "O'Brien", "a%b", "a+b c", "é😀", "a&b=c;d,e:f", "(x)!*~"], ids=ascii)
async def test_operations(endpoint, credential, name, key):
    async with TableServiceClient(endpoint, credential=credential, retry_total=0) as service:
        table = await service.create_table(name)
        await table.create_entity(entity(key, key, A=1))
        await table.update_entity(entity(key, key, B=2))
        found = await table.get_entity(key, key)
        assert (found["A"], found["B"]) == (1, 2)
        await table.submit_transaction([("upsert", entity(key, key, C=3)), ("create", entity(key, key + "2"))])
        assert len([e async for e in table.list_entities()]) == 2
        await table.delete_entity(key, key)
        with pytest.raises(ResourceNotFoundError):
            await table.get_entity(key, key)
        await service.delete_table(name)


async def test_many_at_once(endpoint, credential, name):
    async with TableServiceClient(endpoint, credential=credential, retry_total=0) as service:
        table = await service.create_table(name)
        await asyncio.gather(*(table.create_entity(entity(row=f"{n:03}", N=n)) for n in range(200)))
        assert [e["N"] async for e in table.list_entities(results_per_page=30)] == list(range(200))
        await service.delete_table(name)
