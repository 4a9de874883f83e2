#include "storage/devices/staging_arena.hpp"

#include <bit>

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage {

unsigned StagingArena::order_of(std::size_t length) {
    const std::size_t units = (length + smallest - 1) / smallest;
    return units <= 1 ? 0 : static_cast<unsigned>(std::bit_width(units - 1));
}

void StagingArena::assign(std::byte* memory, std::size_t bytes) {
    GPUNBD_ASSERT(std::has_single_bit(bytes) && bytes >= smallest,
                  "staging memory is a power of two, so that it can be halved");
    GPUNBD_ASSERT(free_bytes() == bytes_, "no piece of earlier staging memory is in use");
    memory_ = memory;
    bytes_ = bytes;
    free_bytes_.set(bytes);
    blocks_.assign(bytes / smallest, Block{});
    free_lists_.assign(order_of(bytes) + 1, none);
    push_free(0, order_of(bytes));
}

void StagingArena::push_free(std::uint32_t index, unsigned order) {
    Block& block = blocks_[index];
    GPUNBD_ASSERT((index & ((1U << order) - 1)) == 0,
                  "a block begins at a multiple of its size, so that its buddy can be found");
    GPUNBD_ASSERT(!block.free, "a block becomes free once");
    block = {.next = free_lists_[order],
             .previous = none,
             .order = static_cast<std::uint8_t>(order),
             .free = true};
    if (block.next != none) blocks_[block.next].previous = index;
    free_lists_[order] = index;
}

void StagingArena::remove_free(std::uint32_t index) {
    Block& block = blocks_[index];
    GPUNBD_ASSERT(block.free, "only a free block leaves its list");
    (block.previous == none ? free_lists_[block.order] : blocks_[block.previous].next) = block.next;
    if (block.next != none) blocks_[block.next].previous = block.previous;
    block.free = false;
}

std::byte* StagingArena::take(std::size_t length, std::size_t& held) {
    const std::size_t size = smallest << order_of(length);
    if (free_bytes() != bytes_) {
        if (held != 0 && held + 2 * size > free_bytes()) return nullptr;
        if (size > short_piece && size <= bytes_ / 8 && size + bytes_ / reserve > free_bytes()) {
            return nullptr;
        }
    }
    return take_again(length, held);
}

std::byte* StagingArena::take_again(std::size_t length, std::size_t& held) {
    const unsigned order = order_of(length);
    const std::size_t size = smallest << order;
    GPUNBD_ASSERT(memory_ != nullptr, "an arena gets its memory before it lends any");
    unsigned from = order;
    while (from < free_lists_.size() && free_lists_[from] == none) ++from;
    if (from >= free_lists_.size()) return nullptr;
    const std::uint32_t index = free_lists_[from];
    remove_free(index);
    while (from > order) {
        --from;
        push_free(index + (1U << from), from);
    }
    blocks_[index].order = static_cast<std::uint8_t>(order);
    free_bytes_.set(free_bytes() - size);
    held += size;
    return memory_ + std::size_t{index} * smallest;
}

void StagingArena::give_back(std::byte* piece, std::size_t length, std::size_t& held) {
    unsigned order = order_of(length);
    auto index = static_cast<std::uint32_t>(static_cast<std::size_t>(piece - memory_) / smallest);
    GPUNBD_ASSERT(piece >= memory_ && index < blocks_.size(),
                  "a piece returns to the arena that has lent it");
    GPUNBD_ASSERT(!blocks_[index].free && blocks_[index].order == order,
                  "a piece is returned once, and with the length with which it was taken");
    GPUNBD_ASSERT(held >= smallest << order, "a borrower returns what it holds");
    free_bytes_.add(smallest << order);
    held -= smallest << order;
    GPUNBD_ASSERT(free_bytes() <= bytes_, "no more is free than an arena has");
    for (; order + 1 < free_lists_.size(); ++order) {
        const std::uint32_t buddy = index ^ (1U << order);
        if (!blocks_[buddy].free || blocks_[buddy].order != order) break;
        remove_free(buddy);
        index &= ~(1U << order);
    }
    push_free(index, order);
    returned_ = true;
}

void StagingArena::wait(StagingWaiter& waiter) {
    if (waiter.hook_.is_linked()) return;
    waits_.add();
    waiters_.push_back(waiter);
}

void StagingArena::wake() {
    if (!can_wake()) return;
    returned_ = false;
    // Wakes only current waiters: one that waits again is not woken twice.
    to_wake_.splice(to_wake_.end(), waiters_);
    while (!to_wake_.empty()) {
        StagingWaiter& waiter = to_wake_.front();
        to_wake_.pop_front();
        waiter.staging_available();
    }
}

}  // namespace gpunbd::storage
