#include "storage/origins/origin_transfers.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <exception>
#include <span>

#include "storage/base/log_line.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::storage {

// --- reads and writes ----------------------------------------------------------------------------

OriginTransfers::ReadResult OriginTransfers::read(std::uint64_t page, Parts parts,
                                                  const PageRef& to, SlabCopier& copier) {
    ReadResult out;
    const std::uint64_t begin = page * volume_.page_size();
    out.status = fill(parts, to, copier, [&](std::uint64_t in_page, std::span<std::byte> memory) {
        return read_bytes(begin + in_page, memory, out.bytes);
    });
    if (out.status == Status::ok) has_failed_ = false;
    return out;
}

Status OriginTransfers::read_bytes(std::uint64_t offset, std::span<std::byte> memory,
                                   std::uint64_t& bytes) {
    // A page may go on after the end of the origin, with zeroes.
    const std::uint64_t left = volume_.size() - std::min(offset, volume_.size());
    const auto part = memory.first(std::min<std::uint64_t>(memory.size(), left));
    std::ranges::fill(memory.subspan(part.size()), std::byte{});
    if (part.empty()) return Status::ok;
    if (const auto why = origin_.read(offset, part)) {
        log_error("cannot be read", *why);
        return Status::io_error;
    }
    bytes += part.size();
    return Status::ok;
}

OriginTransfers::ReadResult OriginTransfers::clear(Parts parts, const PageRef& to,
                                                   SlabCopier& copier) {
    const auto clear = [](std::uint64_t, std::span<std::byte> memory) {
        std::ranges::fill(memory, std::byte{});
        return Status::ok;
    };
    return {.status = fill(parts, to, copier, clear)};
}

// Its first block has bytes that stay.
OriginTransfers::ReadResult OriginTransfers::read_rest(std::uint64_t offset, bool is_zero,
                                                       const PageRef& to, SlabCopier& copier) {
    constexpr std::uint64_t block = WriteRecords::block_size;
    const std::uint64_t part = volume_.division().part_size();
    const std::uint64_t begin = volume_.offset_in_page(offset);
    const std::uint64_t whole = (begin + block - 1) / block * block;
    const std::uint64_t end = (begin / part + 1) * part;
    const std::uint64_t page = offset - begin;
    ReadResult out;
    alignas(block) std::array<std::byte, block> first{};
    if (begin != whole && !is_zero) {
        out.status = read_bytes(page + whole - block, first, out.bytes);
    }
    if (begin != whole && out.status == Status::ok) {
        out.status = fill_bytes(
            begin, whole - begin, to, copier, [&](std::uint64_t at, std::span<std::byte> memory) {
                std::memcpy(memory.data(), first.data() + at % block, memory.size());
                return Status::ok;
            });
    }
    if (whole != end && out.status == Status::ok) {
        out.status = fill_bytes(whole, end - whole, to, copier,
                                [&](std::uint64_t at, std::span<std::byte> memory) {
                                    if (!is_zero) return read_bytes(page + at, memory, out.bytes);
                                    std::ranges::fill(memory, std::byte{});
                                    return Status::ok;
                                });
    }
    return out;
}

Status OriginTransfers::fill(Parts parts, const PageRef& to, SlabCopier& copier, const Get& get) {
    const std::uint64_t size = volume_.division().part_size();
    while (parts != 0) {
        const auto first = static_cast<std::uint64_t>(std::countr_zero(parts));
        const auto count = static_cast<std::uint64_t>(std::countr_one(parts >> first));
        const Status status = fill_bytes(first * size, count * size, to, copier, get);
        if (status != Status::ok) return status;
        parts &= ~PageDivision::run(first, count);
    }
    return Status::ok;
}

Status OriginTransfers::fill_bytes(std::uint64_t begin, std::uint64_t length, const PageRef& to,
                                   SlabCopier& copier, const Get& get) {
    SlabPosition position = to.position();
    position.offset += begin;
    try {
        return copier.fill(position, length, [&](std::uint64_t done, std::span<std::byte> memory) {
            return get(begin + done, memory);
        });
    } catch (const std::exception& error) {  // the device may be failing
        log_error("cannot be read", error.what());
        return Status::io_error;
    }
}

Status OriginTransfers::write(std::uint64_t page, const WriteRecords::Blocks& blocks,
                              const PageRef& from, SlabCopier& copier) {
    const std::uint64_t begin = page * volume_.page_size();
    const std::uint64_t size = std::min(volume_.page_size(), volume_.size() - begin);
    for (auto first = blocks.find_first(); first != WriteRecords::Blocks::npos;) {
        auto last = first;
        while (last + 1 != blocks.size() && blocks.test(last + 1)) ++last;
        const std::uint64_t skipped = first * WriteRecords::block_size;
        const std::uint64_t end = std::min((last + 1) * WriteRecords::block_size, size);
        SlabPosition position = from.position();
        position.offset += skipped;
        const Status status = write_run(begin + skipped, end - skipped, position, copier);
        if (status != Status::ok) return status;
        first = blocks.find_next(last);
    }
    has_failed_ = false;
    return Status::ok;
}

Status OriginTransfers::write_run(std::uint64_t offset, std::uint64_t length, SlabPosition from,
                                  SlabCopier& copier) {
    return copier.drain(from, length, [&](std::uint64_t done, std::span<const std::byte> memory) {
        const auto why = origin_.write(offset + done, memory);
        if (!why) return Status::ok;
        log_error("cannot be written to", *why);
        return Status::io_error;
    });
}

Status OriginTransfers::flush() noexcept {
    try {
        const auto why = origin_.flush();
        if (!why) return Status::ok;
        if (origin_.may_have_lost_writes()) {
            log_loss(*why + "; writes may be lost, so no flush succeeds before a restart");
        } else {
            log_error("cannot be flushed", *why);
        }
    } catch (const std::exception& error) {  // no memory
        log_error("cannot be flushed", error.what());
    }
    return Status::io_error;
}

// --- zeroes --------------------------------------------------------------------------------------

PageRange OriginTransfers::pages_of(const ZeroRequest& zero) const {
    return {.begin = volume_.page_of(zero.offset),
            .end = volume_.page_of(zero.offset + zero.length - 1) + 1};
}

PageRange OriginTransfers::whole_pages_of(const ZeroRequest& zero) const {
    const std::uint64_t end = zero.offset + zero.length;
    const std::uint64_t begin = volume_.page_of(zero.offset + volume_.page_size() - 1);
    return {.begin = begin,
            .end = std::max(begin, end == volume_.size() ? volume_.pages() : volume_.page_of(end))};
}

Status OriginTransfers::zero(const ZeroRequest& zero, SlabCopier& copier) noexcept {
    try {
        if (const auto why = zero_origin(zero)) {
            log_error("cannot be written to", *why);
            return Status::io_error;
        }
        return zero_memory(zero, copier);
    } catch (const std::exception& error) {
        log_error("cannot be written to", error.what());
        return Status::io_error;
    }
}

// The origin may know whole blocks only. It has the rest of those at both ends, or gets it in a
// later round: none is in progress.
Origin::Error OriginTransfers::zero_origin(const ZeroRequest& zero) {
    constexpr std::uint64_t block = WriteRecords::block_size;
    const std::uint64_t end = zero.offset + zero.length;
    std::uint64_t at = zero.offset;
    const auto zero_part = [&](std::uint64_t until) -> Origin::Error {
        alignas(block) std::array<std::byte, block> memory{};
        const std::uint64_t begin = at / block * block;
        const auto all = std::span(memory).first(std::min(block, volume_.size() - begin));
        if (auto why = origin_.read(begin, all)) return why;
        std::memset(memory.data() + (at - begin), 0, until - at);
        at = until;
        return origin_.write(begin, all);
    };
    if (at % block != 0) {
        if (auto why = zero_part(std::min(end, (at / block + 1) * block))) return why;
    }
    const std::uint64_t whole = end == volume_.size() ? end : end / block * block;
    if (at < whole) {
        if (auto why = origin_.zero(at, whole - at, zero.keeps_space)) return why;
        at = whole;
    }
    return at < end ? zero_part(end) : std::nullopt;
}

// The parts of pages at both ends; the caller drops whole pages.
Status OriginTransfers::zero_memory(const ZeroRequest& zero, SlabCopier& copier) {
    const std::uint64_t end = zero.offset + zero.length;
    const std::uint64_t size = volume_.page_size();
    const PageRange changed = pages_of(zero);
    const PageRange whole = whole_pages_of(zero);
    for (const std::uint64_t page : {changed.begin, changed.end - 1}) {
        const std::uint64_t from = std::max(zero.offset, page * size);
        const std::uint64_t until = std::min(end, (page + 1) * size);
        if (whole.contains(page)) continue;
        const PageRef to = volume_.find(page);
        if (to.hole() || !to.device().readable()) continue;
        SlabPosition position = to.position();
        position.offset += from - page * size;
        const Status status =
            copier.fill(position, until - from, [](std::uint64_t, std::span<std::byte> memory) {
                std::memset(memory.data(), 0, memory.size());
                return Status::ok;
            });
        if (status != Status::ok) return status;
        if (changed.begin == changed.end - 1) break;
    }
    return Status::ok;
}

// --- the log -------------------------------------------------------------------------------------

void OriginTransfers::log_error(const char* what, const std::string& why) noexcept {
    if (!has_failed_.exchange(true)) log_line(what, why);
}

void OriginTransfers::log_line(const char* what, const std::string& why) noexcept {
    log_if_possible([&] {
        LogLine(spdlog::level::err)
            .with("export", export_name_)
            .with("origin", origin_.name())
            .log("export '{}': its origin {}: {}", export_name_, what, why);
    });
}

}  // namespace gpunbd::storage
