// An origin in memory, which fails, waits and loses its power as a test wants.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "storage/origins/origin.hpp"

namespace gpunbd::storage::test {

// Outlives its MemoryOrigin.
struct OriginContents {
    explicit OriginContents(std::uint64_t size) : now(size), durable(size) {}

    std::vector<std::byte> now;      // written
    std::vector<std::byte> durable;  // at the last flush: what a loss of power leaves
    std::mutex mutex;
    std::atomic<bool> fails_reads{false};
    std::atomic<bool> fails_writes{false};
    std::atomic<bool> fails_flushes{false};
    std::atomic<std::uint64_t> bad_byte{~std::uint64_t{0}};  // reads of it fail
    std::atomic<std::uint32_t> allowed_reads{~0U};           // later ones wait
    std::atomic<bool> blocks_writes{false};
    std::atomic<bool> blocks_flushes{false};
    std::chrono::milliseconds delay{0};  // of reads
    std::atomic<bool> can_zero{true};
    std::atomic<std::uint32_t> reads{0};
    std::atomic<std::uint32_t> begun_writes{0};
    std::atomic<std::uint32_t> writes{0};
    std::atomic<std::uint32_t> flushes{0};

    bool holds(const std::vector<std::byte>& of, const std::vector<std::byte>& wanted,
               const std::vector<char>& known) {
        const std::lock_guard lock(mutex);
        for (std::size_t i = 0; i != wanted.size(); ++i) {
            if (known[i] != 0 && of[i] != wanted[i]) return false;
        }
        return true;
    }
};

class MemoryOrigin final : public Origin {
 public:
    explicit MemoryOrigin(OriginContents& contents) : contents_(contents) {}

    const std::string& name() const override { return name_; }
    std::uint64_t size() const override { return contents_.now.size(); }
    std::optional<Extent> next_data(std::uint64_t offset) const override {
        if (offset >= size()) return std::nullopt;
        return Extent{offset, size()};
    }
    Error do_read(std::uint64_t offset, std::span<std::byte> to) override {
        const std::uint32_t number = ++contents_.reads;
        std::this_thread::sleep_for(contents_.delay);
        while (number > contents_.allowed_reads) std::this_thread::yield();
        const bool is_bad = contents_.bad_byte - offset < to.size();
        if (contents_.fails_reads || is_bad) return "broken";
        const std::lock_guard lock(contents_.mutex);
        std::copy_n(contents_.now.begin() + static_cast<std::ptrdiff_t>(offset), to.size(),
                    to.begin());
        return {};
    }
    Error do_write(std::uint64_t offset, std::span<const std::byte> from) override {
        ++contents_.begun_writes;
        while (contents_.blocks_writes) std::this_thread::yield();
        ++contents_.writes;
        if (contents_.fails_writes) return "full";
        const std::lock_guard lock(contents_.mutex);
        std::ranges::copy(from, contents_.now.begin() + static_cast<std::ptrdiff_t>(offset));
        return {};
    }
    Error do_zero(std::uint64_t offset, std::uint64_t length, bool /*keeps_space*/) override {
        if (contents_.fails_writes) return "full";
        const std::lock_guard lock(contents_.mutex);
        std::fill_n(contents_.now.begin() + static_cast<std::ptrdiff_t>(offset), length,
                    std::byte{});
        return {};
    }
    bool can_zero() const override { return contents_.can_zero; }
    Error do_flush() override {
        ++contents_.flushes;
        while (contents_.blocks_flushes) std::this_thread::yield();
        if (contents_.fails_flushes) return "gone";
        const std::lock_guard lock(contents_.mutex);
        contents_.durable = contents_.now;
        return {};
    }
    bool may_have_lost_writes() const override { return true; }
    SourceId id() const override { return id_; }
    void set_id(const SourceId& id) { id_ = id; }

 private:
    const std::string name_ = "memory";
    OriginContents& contents_;
    SourceId id_{};
};

}  // namespace gpunbd::storage::test
