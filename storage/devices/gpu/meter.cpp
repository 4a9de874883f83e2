#include "storage/devices/gpu/meter.hpp"

#include <algorithm>
#include <stdexcept>

namespace gpunbd::storage {

namespace {

constexpr std::uint32_t warm_up_rounds = 2;
constexpr std::size_t max_rounds = 100'000;
constexpr std::uint64_t stride = 1 << 20;  // bytes between consecutive copies
constexpr std::uint64_t spread =
    4096;  // one more page per stride, so that offsets within a stride differ

}  // namespace

Meter::Meter(const Slab& slab, Channel& channel) : slab_(slab), channel_(channel) {
    durations_.reserve(max_rounds);
}

void Meter::copy_done(Copy& copy) {
    --pending_;
    failed_ |= copy.status != Status::ok;
}

void Meter::run(const Round& round, std::byte* staging) {
    pending_ = round.copies;
    for (std::uint32_t i = 0; i < round.copies; ++i) {
        Copy& copy = copies_[i];
        place_ = (place_ + stride + spread) % (slab_.bytes - round.bytes) & ~(spread - 1);
        copy.prepare(round.kind, round.bytes, slab_.address + place_,
                     slab_.cpu == nullptr ? nullptr : slab_.cpu + place_,
                     staging == nullptr ? nullptr : staging + std::size_t{i} * round.bytes, *this);
        channel_.enqueue(copy);
    }
    while (pending_ != 0) channel_.poll();
}

double Meter::median_us(const Round& round, std::chrono::microseconds budget) {
    using Clock = std::chrono::steady_clock;
    copies_.resize(round.copies);
    durations_.clear();
    StagingArena& arena =
        round.kind == Copy::Kind::write ? channel_.write_staging() : channel_.read_staging();
    std::size_t held = 0;
    const std::size_t needed = std::size_t{round.bytes} * round.copies;
    std::byte* const staging = round.kind == Copy::Kind::zero ? nullptr : arena.take(needed, held);
    if (staging == nullptr && round.kind != Copy::Kind::zero) {
        throw std::runtime_error("a timed round exceeds the staging memory");
    }
    for (std::uint32_t i = 0; i < warm_up_rounds; ++i) run(round, staging);
    const Clock::time_point end = Clock::now() + budget;
    for (Clock::time_point begin = Clock::now(); begin < end && durations_.size() < max_rounds;) {
        run(round, staging);
        const Clock::time_point now = Clock::now();
        durations_.push_back(std::chrono::duration<double, std::micro>(now - begin).count());
        begin = now;
    }
    if (staging != nullptr) arena.give_back(staging, needed, held);
    if (failed_) throw std::runtime_error("a timed copy failed");
    const auto middle = durations_.begin() + static_cast<std::ptrdiff_t>(durations_.size() / 2);
    std::nth_element(durations_.begin(), middle, durations_.end());
    return *middle;
}

}  // namespace gpunbd::storage
