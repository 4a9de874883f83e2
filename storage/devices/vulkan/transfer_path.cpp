#include "storage/devices/vulkan/transfer_path.hpp"

#include <algorithm>

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage::vulkan {

namespace {

constexpr std::uint64_t group_bytes = 512 << 10;  // a group of this size is closed
constexpr std::uint64_t fill_unit = 4;            // bytes: of vkCmdFillBuffer
static_assert(TransferPath::own_bytes == 2 * fill_unit);

}  // namespace

TransferPath::Stream::Stream(VulkanState& state, Queue& queue)
    : buffers(state.device, queue.family(), depth), ring(state, queue, depth) {}

TransferPath::TransferPath(VulkanState& state, Queue& reads, Queue& writes,
                           const StagingMemory& staging, const std::byte* own)
    : CopyPath(any_length),
      state_(state),
      staging_(staging),
      zeroes_(staging.offset_of(own)),
      reads_(state, reads),
      writes_(state, writes) {}

void TransferPath::warm_up() {
    for (Stream* stream : {&reads_, &writes_}) {
        for (std::uint32_t i = 0; i != depth; ++i) {
            const std::uint32_t slot = stream->ring.slot();
            require(stream->buffers.begin(slot), "no commands can be recorded");
            for (std::uint32_t region = 0; region != max_regions; ++region) {
                add_region(
                    *stream, staging_.buffer(), staging_.buffer(),
                    {.srcOffset = zeroes_, .dstOffset = zeroes_ + fill_unit, .size = fill_unit});
            }
            record_regions(*stream);
            require(stream->buffers.end(slot), "no commands can be recorded");
            stream->ring.close(stream->buffers.at(slot));
        }
        require(stream->ring.wait(), "copies fail");
    }
}

bool TransferPath::add(Copy& copy) {
    Stream& stream = stream_of(copy);
    GPUNBD_ASSERT(!stream.ring.full(), "a copy is added after has_room() was true");
    if (!stream.recording) {
        const VkResult result = stream.buffers.begin(stream.ring.slot());
        if (result != VK_SUCCESS) {
            state_.refuse(copy, result);
            return true;
        }
        stream.recording = true;
    }
    const VkBuffer slab = state_.slabs.at(copy.address).get();
    const std::uint64_t offset = SlabTable::offset_of(copy.address);
    switch (copy.kind) {
        case Copy::Kind::read:
            add_region(stream, slab, staging_.buffer(),
                       {.srcOffset = offset,
                        .dstOffset = staging_.offset_of(copy.staging),
                        .size = copy.length});
            break;
        case Copy::Kind::write:
            add_region(stream, staging_.buffer(), slab,
                       {.srcOffset = staging_.offset_of(copy.staging),
                        .dstOffset = offset,
                        .size = copy.length});
            break;
        case Copy::Kind::zero:
            record_zeroes(stream, copy);
            break;
    }
    stream.ring.open().push(copy);
    stream.bytes += copy.length;
    if (stream.bytes >= group_bytes) close(stream);
    return false;
}

// Whole units are filled. Zeroes are copied to the bytes before and behind them.
void TransferPath::record_zeroes(Stream& stream, const Copy& copy) {
    const VkBuffer slab = state_.slabs.at(copy.address).get();
    const std::uint64_t begin = SlabTable::offset_of(copy.address);
    const std::uint64_t end = begin + copy.length;
    GPUNBD_ASSERT(stream.recording, "zeroes are part of the commands of a group");
    const std::uint64_t fill_begin = std::min(end, (begin + fill_unit - 1) / fill_unit * fill_unit);
    const std::uint64_t fill_end = std::max(fill_begin, end / fill_unit * fill_unit);
    if (fill_end > fill_begin) {
        state_.device.functions().CmdFillBuffer(stream.commands(), slab, fill_begin,
                                                fill_end - fill_begin, 0);
    }
    const auto copy_zeroes = [&](std::uint64_t from, std::uint64_t to) {
        if (from == to) return;
        add_region(stream, staging_.buffer(), slab,
                   {.srcOffset = zeroes_, .dstOffset = from, .size = to - from});
    };
    copy_zeroes(begin, fill_begin);
    copy_zeroes(fill_end, end);
}

void TransferPath::add_region(Stream& stream, VkBuffer from, VkBuffer to,
                              const VkBufferCopy& region) {
    if (stream.count == max_regions || stream.from != from || stream.to != to) {
        record_regions(stream);
    }
    stream.from = from;
    stream.to = to;
    stream.regions[stream.count++] = region;
}

void TransferPath::record_regions(Stream& stream) {
    if (stream.count == 0) return;
    state_.device.functions().CmdCopyBuffer(stream.commands(), stream.from, stream.to, stream.count,
                                            stream.regions.data());
    stream.count = 0;
}

void TransferPath::close(Stream& stream) {
    GPUNBD_ASSERT(stream.recording, "a group that is closed has commands");
    record_regions(stream);
    stream.recording = false;
    stream.bytes = 0;
    const std::uint32_t slot = stream.ring.slot();
    const VkResult result = stream.buffers.end(slot);
    if (result != VK_SUCCESS) {
        stream.ring.refuse_open(result);
        return;
    }
    stream.ring.close(stream.buffers.at(slot));
    state_.engine_copies.fetch_add(1, std::memory_order_relaxed);
}

void TransferPath::submit() {
    for (Stream* stream : {&reads_, &writes_}) {
        if (stream->recording) close(*stream);
        stream->ring.submit();
    }
}

bool TransferPath::take_ended(CopyQueue& ended) {
    for (Stream* stream : {&reads_, &writes_}) {
        const std::uint32_t before = stream->ring.in_flight();
        if (!stream->ring.take_ended(ended)) continue;
        state_.engine_copies.fetch_sub(static_cast<std::int32_t>(before - stream->ring.in_flight()),
                                       std::memory_order_relaxed);
        return true;
    }
    return false;
}

void TransferPath::take_all(CopyQueue& all) {
    for (Stream* stream : {&reads_, &writes_}) stream->ring.take_all(all);
}

}  // namespace gpunbd::storage::vulkan
