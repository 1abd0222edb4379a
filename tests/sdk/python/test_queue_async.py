"""The asynchronous client: the same messages by another way of sending."""
import asyncio

from azure.storage.queue.aio import QueueServiceClient

from server import ACCOUNT, KEY


async def test_many_at_once(queue_endpoint, queue_name):
    async with QueueServiceClient(queue_endpoint, credential={"account_name": ACCOUNT, "account_key": KEY}, retry_total=0) as service:
        client = await service.create_queue(queue_name)
        await asyncio.gather(*(client.send_message(f"m{n}") for n in range(40)))
        seen = []

        async def consume():
            async for message in client.receive_messages(messages_per_page=5, visibility_timeout=60):
                seen.append(message.content)
                await client.delete_message(message)

        await asyncio.gather(*(consume() for _ in range(4)))
        assert sorted(seen) == sorted(f"m{n}" for n in range(40))
        assert (await client.get_queue_properties()).approximate_message_count == 0
        assert [q.name async for q in service.list_queues(name_starts_with=queue_name)] == [queue_name]
        await client.delete_queue()
