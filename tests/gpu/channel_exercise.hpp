// What the tests of GPU channels share: copies with a model of the contents, for any driver.
#pragma once

#include <cmath>
#include <random>

#include "storage/devices/device.hpp"
#include "storage/devices/gpu/policy.hpp"
#include "storage/devices/store.hpp"
#include "tests/storage/owned_slab.hpp"
#include "tests/test.hpp"

namespace gpunbd::test {

using namespace gpunbd::storage;
using Clock = std::chrono::steady_clock;
using Bytes = std::vector<std::byte>;

constexpr std::uint64_t mib = 1 << 20;
constexpr ChannelOptions roomy{.chunk_size = 1 << 20, .slots = 2, .pinned = 64 << 20};
constexpr ChannelOptions usual{};

using storage::test::OwnedSlab;

// Enqueues copies and waits for all of them.
class Copies final : public CopyOwner {
 public:
    explicit Copies(Channel& channel) : channel_(channel) { copies_.reserve(max); }

    void add(Copy::Kind kind, const Slab& slab, std::uint64_t offset, std::size_t length,
             std::byte* staging) {
        Copy& copy = copies_.emplace_back();
        copy.prepare(kind, static_cast<std::uint32_t>(length), slab.address + offset,
                     slab.cpu == nullptr ? nullptr : slab.cpu + offset, staging, *this);
        ++pending_;
        channel_.enqueue(copy);
    }
    bool done() const { return pending_ == 0; }
    // Waits for all copies, returns the number of failed ones, and forgets them. Throws after a
    // minute.
    std::size_t await() {
        const Clock::time_point end = Clock::now() + std::chrono::minutes(1);
        while (!done()) {
            channel_.poll();
            if (Clock::now() > end) throw std::runtime_error("copies do not end");
        }
        copies_.clear();
        return std::exchange(failed_, 0);
    }
    void copy_done(Copy& copy) override {
        --pending_;
        if (copy.status != Status::ok) ++failed_;
    }

 private:
    static constexpr std::size_t max = 4096;
    Channel& channel_;
    std::vector<Copy> copies_;
    std::size_t pending_ = 0;
    std::size_t failed_ = 0;
};

class Random {
 public:
    explicit Random(std::uint64_t seed) : engine_(seed) {}
    std::uint64_t below(std::uint64_t limit) { return engine_() % limit; }
    // 1 to `max`, with small values as likely as large ones.
    std::uint64_t length(std::uint64_t max) {
        const double exponent =
            std::uniform_real_distribution<>(0, std::log2(static_cast<double>(max) + 1))(engine_);
        return static_cast<std::uint64_t>(std::exp2(exponent));
    }
    void fill(std::byte* to, std::size_t length) {
        for (; length >= 8; to += 8, length -= 8) {
            const std::uint64_t value = engine_();
            std::memcpy(to, &value, 8);
        }
        for (; length != 0; --length) *to++ = static_cast<std::byte>(engine_());
    }

 private:
    std::mt19937_64 engine_;
};

struct NamedPolicy {
    const char* name;
    Policy policy;
};

inline std::vector<NamedPolicy> policies() {
    return {{"copy engine", only(PathKind::copy_engine)},
            {"engine batch", only(PathKind::engine_batch)},
            {"kernel", only(PathKind::kernel)},
            {"persistent kernel", only(PathKind::persistent_kernel)},
            {"streaming loads", only(PathKind::streaming_load)},
            {"stores into the mapping", only(PathKind::mapping)},
            {"default", default_policy()}};
}

// Many random reads, writes and zeroes at once, compared with a model of [begin, begin + length).
inline void exercise(Channel& channel, const Slab& slab, std::uint64_t begin, std::uint64_t length,
                     int rounds, std::uint64_t longest, std::uint64_t seed) {
    Random random(seed);
    Bytes model(length);
    Bytes expected;
    struct Read {
        std::uint64_t offset;
        std::uint64_t length;
        const std::byte* staging;
    };
    {
        Copies wipe(channel);
        for (std::uint64_t at = 0; at < length; at += mib) {
            wipe.add(Copy::Kind::zero, slab, begin + at, std::min(mib, length - at), nullptr);
        }
        REQUIRE(wipe.await() == 0);
    }
    std::size_t held = 0;
    const std::size_t staging_bytes = channel.read_staging().largest() / 2;
    std::byte* const to_read = channel.read_staging().take(staging_bytes, held);
    std::byte* const to_write = channel.write_staging().take(staging_bytes, held = 0);
    REQUIRE(to_read != nullptr);
    REQUIRE(to_write != nullptr);
    Copies copies(channel);
    std::vector<Read> reads;
    std::size_t wrong = 0;
    for (int round = 0; round < rounds; ++round) {
        // Each copy has a range of its own, since the order of overlapping copies is undefined.
        const std::uint64_t count = random.length(64);
        const std::uint64_t window = length / count;
        const std::uint64_t room = staging_bytes / count;
        reads.clear();
        for (std::uint64_t i = 0; i < count; ++i) {
            const std::uint64_t skew = random.below(64);
            const std::uint64_t size = random.length(std::min({longest, window, room - 64}));
            const std::uint64_t offset = i * window + random.below(window - size + 1);
            switch (random.below(5)) {
                case 0:
                case 1: {
                    std::byte* const staging = to_read + i * room + skew;
                    copies.add(Copy::Kind::read, slab, begin + offset, size, staging);
                    reads.push_back({offset, size, staging});
                    break;
                }
                case 2:
                case 3: {
                    std::byte* const staging = to_write + i * room + skew;
                    random.fill(staging, size);
                    std::memcpy(model.data() + offset, staging, size);
                    copies.add(Copy::Kind::write, slab, begin + offset, size, staging);
                    break;
                }
                default:
                    std::memset(model.data() + offset, 0, size);
                    copies.add(Copy::Kind::zero, slab, begin + offset, size, nullptr);
                    break;
            }
        }
        REQUIRE(copies.await() == 0);
        for (const Read& read : reads) {
            if (std::memcmp(model.data() + read.offset, read.staging, read.length) != 0) ++wrong;
        }
    }
    CHECK(wrong == 0);
    channel.read_staging().give_back(to_read, staging_bytes, held = staging_bytes);
    channel.write_staging().give_back(to_write, staging_bytes, held = staging_bytes);
}

// Each reader sees at once what each writer, and the CPU if it can address the slab, has written.
// Lengths and offsets are multiples of `unit`.
inline void exercise_visibility(const Slab& slab, const std::vector<Channel*>& writers,
                                const std::vector<Channel*>& readers, std::uint64_t unit) {
    constexpr std::size_t longest = 65536;
    Random random(3);
    Bytes payload(longest);
    for (std::size_t by = 0; by != writers.size() + (slab.cpu != nullptr ? 1 : 0); ++by) {
        for (std::size_t to = 0; to != readers.size(); ++to) {
            CAPTURE(by);
            CAPTURE(to);
            const bool by_cpu = by == writers.size();
            Channel& writing = by_cpu ? *writers[0] : *writers[by];
            Channel& reading = *readers[to];
            Copies writes(writing);
            Copies reads(reading);
            std::size_t held = 0;
            std::byte* const in = writing.write_staging().take(longest, held);
            std::byte* const out = reading.read_staging().take(longest, held = 0);
            std::size_t stale = 0;
            for (int i = 0; i < 3000; ++i) {
                const std::uint64_t units = (i % 8 == 0 ? longest : 4096) / unit;
                const std::uint64_t length = random.length(units) * unit;
                const std::uint64_t offset = random.below(8192 / unit) * unit;  // few blocks
                random.fill(payload.data(), length);
                if (by_cpu) {
                    store_streaming(slab.cpu + offset, payload.data(), length);
                    store_fence();
                } else {
                    std::memcpy(in, payload.data(), length);
                    writes.add(Copy::Kind::write, slab, offset, length, in);
                    REQUIRE(writes.await() == 0);
                }
                reads.add(Copy::Kind::read, slab, offset, length, out);
                REQUIRE(reads.await() == 0);
                if (std::memcmp(out, payload.data(), length) != 0) ++stale;
            }
            CHECK(stale == 0);
            writing.write_staging().give_back(in, longest, held = longest);
            reading.read_staging().give_back(out, longest, held = longest);
        }
    }
}

// Copies ranges between two slabs and within one by Device::copy(), and reads them by a channel.
inline void exercise_device_copies(Device& device) {
    const OwnedSlab first(device, {.bytes = 4 * mib});
    const OwnedSlab second(device, {.bytes = 4 * mib});
    const auto channel = device.open_channel(roomy);
    std::size_t held = 0;
    std::byte* const in = channel->write_staging().take(mib, held);
    std::byte* const out = channel->read_staging().take(mib, held = 0);
    Random random(7);
    Copies copies(*channel);
    const std::uint64_t lengths[] = {512, 4096, 65536, mib - 512, mib};
    for (const std::uint64_t length : lengths) {
        for (const Slab* const target : {&first, &second}) {
            const std::uint64_t from = random.below(2048) * 512;
            const std::uint64_t to = 2 * mib + random.below(2048) * 512;
            random.fill(in, length);
            copies.add(Copy::Kind::write, first, from, length, in);
            REQUIRE(copies.await() == 0);
            REQUIRE(device.copy(first, from, *target, to, length) == Status::ok);
            copies.add(Copy::Kind::read, *target, to, length, out);
            REQUIRE(copies.await() == 0);
            CHECK(std::memcmp(in, out, length) == 0);
        }
    }
    channel->write_staging().give_back(in, mib, held = mib);
    channel->read_staging().give_back(out, mib, held = mib);
}

// Reads the whole slab through the channel and counts bytes that differ from one value.
inline std::uint64_t bytes_other_than(Channel& channel, const Slab& slab, std::byte value) {
    std::size_t held = 0;
    std::byte* const staging = channel.read_staging().take(mib, held);
    Copies copies(channel);
    std::uint64_t other = 0;
    for (std::uint64_t at = 0; at < slab.bytes; at += mib) {
        copies.add(Copy::Kind::read, slab, at, mib, staging);
        if (copies.await() != 0) other += mib;
        for (std::size_t i = 0; i < mib; ++i) other += staging[i] != value;
    }
    channel.read_staging().give_back(staging, mib, held);
    return other;
}

}  // namespace gpunbd::test
