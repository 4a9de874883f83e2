#include "storage/devices/gpu/gpu_channel.hpp"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/base/log_line.hpp"
#include "storage/devices/store.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::chrono::milliseconds period(2);

struct Tally {
    std::uint32_t period = 0;  // the number of the period
    std::uint16_t present = 0;
    std::uint16_t before = 0;
};
static_assert(std::atomic<Tally>::is_always_lock_free);

std::atomic<Tally> tally{Tally{}};
thread_local std::uint32_t counted_in = 0;

constexpr std::uint32_t polls_per_clock = 32;  // polls between two reads of the clock
constexpr auto error_check_interval = std::chrono::milliseconds(1);
constexpr std::uint32_t many_writers = 8;  // threads
// Of urgent copies while others are in flight: the CPU takes about 6 us for 4 KiB, and a kernel or
// an engine works on the others first.
constexpr std::uint32_t max_urgent_by_cpu = 8 * 1024;  // bytes, of all that wait

Direction direction_of(Copy::Kind kind) {
    switch (kind) {
        case Copy::Kind::write:
            return Direction::write;
        case Copy::Kind::zero:
            return Direction::zero;
        case Copy::Kind::read:
            break;
    }
    return Direction::read;
}

// If a GPU fetches memory that is modified in a CPU's own cache, the cache has to be snooped. If
// many workers write at once, in particular to several GPUs, snooping slows copies to less than
// half. With few workers, demoting the memory costs more than it saves. Measured on two H200s, see
// server/PERFORMANCE.md.
bool many_are_writing() { return count_writer(std::chrono::steady_clock::now()) >= many_writers; }

}  // namespace

std::uint32_t count_writer(std::chrono::steady_clock::time_point now) {
    const auto number = static_cast<std::uint32_t>(now.time_since_epoch() / period);
    Tally seen = tally.load(std::memory_order_relaxed);
    while (counted_in != number) {
        Tally next{.period = number, .present = 1, .before = 0};
        if (seen.period == number) {
            next.present = static_cast<std::uint16_t>(seen.present + 1);
            next.before = seen.before;
        } else if (seen.period + 1 == number) {
            next.before = seen.present;
        }
        if (tally.compare_exchange_weak(seen, next, std::memory_order_relaxed)) {
            counted_in = number;
            seen = next;
        }
    }
    return seen.before;
}

void GpuChannel::Waiting::push(Copy& copy) {
    copies.push(copy);
    ++count;
    bytes += copy.length;
}

Copy* GpuChannel::Waiting::pop() {
    Copy* const copy = copies.pop();
    if (copy == nullptr) return nullptr;
    GPUNBD_ASSERT(count != 0 && bytes >= copy->length, "each copy that waits is counted");
    --count;
    bytes -= copy->length;
    return copy;
}

GpuChannel::GpuChannel(const ChannelOptions& options, GpuState& state, const Policy& policy)
    : Channel(options), state_(state) {
    set_policy(policy);
}

void GpuChannel::set_policy(const Policy& policy) {
    GPUNBD_ASSERT(unfinished() == 0, "the paths of copies in flight do not change");
    policy_ = policy;
    max_for_kernel_ = policy.max_for_kernel();
}

void GpuChannel::use(const CopyPaths& paths) {
    GPUNBD_ASSERT(paths.cpu != nullptr && paths.copy_engine != nullptr &&
                      paths.engine_batch != nullptr && paths.kernel != nullptr &&
                      paths.persistent_kernel != nullptr,
                  "a path that a GPU lacks is there, and takes no copies");
    GPUNBD_ASSERT(unfinished() == 0, "paths are known before the first copy");
    paths_ = paths;
    in_turn_ = {paths.persistent_kernel, paths.kernel, paths.copy_engine,
                paths.engine_batch,      paths.cpu,    &managed_};
}

void GpuChannel::progress(CopyQueue& queued) {
    if (!state_.failed()) {
        collect();
        sort(queued);
        submit(urgent_);
        submit(small_reads_);
        submit(small_writes_);
        submit(long_);
        check_state();
    }
    if (state_.failed()) fail_everything(queued);
}

void GpuChannel::sort(CopyQueue& queued) {
    while (Copy* copy = queued.pop()) {
        copy->status = Status::ok;
        Waiting& waiting = copy->urgent                     ? urgent_
                           : copy->length > max_for_kernel_ ? long_
                           : copy->kind == Copy::Kind::read ? small_reads_
                                                            : small_writes_;
        waiting.push(*copy);
    }
}

void GpuChannel::submit(Waiting& waiting) {
    if (waiting.count == 0) return;
    const Load load = load_of(waiting);
    std::optional<bool> demotes;  // determined at most once
    while (Copy* copy = waiting.copies.front()) {
        const PathKind kind = choose(*copy, load, waiting.bytes);
        CopyPath& taken = path(kind);
        GPUNBD_ASSERT(taken.can_take(*copy), "a path is chosen only if it can take the copy");
        if (!taken.has_room(*copy)) break;
        waiting.pop();
        count(kind, *copy);
        if (copy->kind == Copy::Kind::write && kind != PathKind::mapping &&
            kind != PathKind::managed) {
            if (!demotes) demotes = many_are_writing();
            if (*demotes) demote(copy->staging, copy->length);
        }
        if (taken.add(*copy)) {
            finish(*copy, copy->status);
        } else if (copy->revocable && revocable_ == nullptr) {
            revocable_ = copy;
            revocable_since_ = std::chrono::steady_clock::now();
        }
    }
    for (CopyPath* each : in_turn_) each->submit();
}

// --- which path ----------------------------------------------------------------------------------

bool GpuChannel::kernels_idle() const {
    return paths_.kernel->idle() && paths_.persistent_kernel->idle();
}

Load GpuChannel::load_of(const Waiting& waiting) const {
    if (waiting.count > 1) return Load::several;
    const bool idle = kernels_idle() && state_.engine_copies.load(std::memory_order_relaxed) == 0;
    return idle ? Load::alone : Load::busy;
}

PathKind GpuChannel::choose(const Copy& copy, Load load, std::uint64_t waiting_bytes) {
    if (copy.revocable && state_.revocable_access.by_cpu()) return PathKind::managed;
    const Direction direction = direction_of(copy.kind);
    // For revocable memory, a batch costs more than its copies one by one. Measured on one H200.
    Policy::Features means{.mapping = copy.cpu != nullptr,
                           .kernels = state_.competition.kernels_allowed(),
                           .persistent_kernel = paths_.persistent_kernel->can_take(copy),
                           .engine_batch = !copy.revocable && paths_.engine_batch->can_take(copy)};
    // The time of CPU copies depends on the sum of their bytes.
    const auto sum =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(waiting_bytes, Policy::any_size - 1));
    if (copy.urgent && load != Load::alone && means.mapping && sum <= max_urgent_by_cpu) {
        const PathKind by_cpu =
            direction == Direction::read ? PathKind::streaming_load : PathKind::mapping;
        if (policy_.uses(by_cpu)) return by_cpu;
    }
    PathKind kind = policy_.choose(direction, load, sum, means);
    if (kind == PathKind::streaming_load || kind == PathKind::mapping) return kind;
    means.mapping = false;
    kind = policy_.choose(direction, load, copy.length, means);
    if (kind == PathKind::persistent_kernel && load == Load::alone &&
        !paths_.persistent_kernel->awake()) {
        // Launching the kernel takes longer than this copy takes otherwise. It is launched when
        // this copy has ended, for the next one, if the client sends it while the kernel lingers.
        paths_.persistent_kernel->pass_by();
        bypassing_ = true;
        means.persistent_kernel = false;
        kind = policy_.choose(direction, load, copy.length, means);
    }
    const bool too_long = kind == PathKind::kernel && !paths_.kernel->can_take(copy);
    return too_long ? PathKind::copy_engine : kind;
}

CopyPath& GpuChannel::path(PathKind kind) {
    switch (kind) {
        case PathKind::mapping:
        case PathKind::streaming_load:
            return *paths_.cpu;
        case PathKind::engine_batch:
            return *paths_.engine_batch;
        case PathKind::managed:
            return managed_;
        case PathKind::persistent_kernel:
            return *paths_.persistent_kernel;
        case PathKind::kernel:
            return *paths_.kernel;
        case PathKind::copy_engine:
        case PathKind::file:  // not of GPUs
            break;
    }
    return *paths_.copy_engine;
}

// --- ends ----------------------------------------------------------------------------------------

void GpuChannel::collect() {
    CopyQueue ended;
    for (CopyPath* each : in_turn_) {
        const bool lingers = each == paths_.persistent_kernel;
        while (each->take_ended(ended)) {
            if (lingers || each == paths_.kernel) slow_kernels_.ended();
            finish_all(ended);
            if (!lingers && std::exchange(bypassing_, false)) paths_.persistent_kernel->wake();
        }
    }
}

void GpuChannel::finish_all(CopyQueue& ended) {
    while (Copy* copy = ended.pop()) {
        if (copy == revocable_) revocable_ = nullptr;
        finish(*copy, copy->status);
    }
}

void GpuChannel::check_state() {
    if (++polls_ % polls_per_clock != 0) return;
    const auto now = std::chrono::steady_clock::now();
    if (now - looked_ >= error_check_interval) {
        looked_ = now;
        for (CopyPath* each : in_turn_) each->check_errors();
    }
    if (revocable_ != nullptr && now - revocable_since_ >= RevocableAccess::stall) {
        state_.revocable_access.copy_stalls(now);
    }
    if (slow_kernels_.seen(kernels_idle(), now) && state_.competition.kernel_was_slow(now)) {
        kernels_stopped();
    }
}

// The device and all copies on it are lost. If the hardware still completes one, it writes into
// staging memory of this channel, which is not used for this device any more.
void GpuChannel::fail_everything(CopyQueue& queued) {
    CopyQueue ended;
    revocable_ = nullptr;
    for (CopyPath* each : in_turn_) each->take_all(ended);
    sort(queued);
    for (Waiting* waiting : {&urgent_, &small_reads_, &small_writes_, &long_}) {
        while (Copy* copy = waiting->pop()) ended.push(*copy);
    }
    std::uint32_t count = 0;
    for (; Copy* const copy = ended.pop(); ++count) finish(*copy, Status::io_error);
    if (count == 0 || failure_logged_) return;
    failure_logged_ = true;
    LogLine(spdlog::level::err)
        .with("device", state_.id)
        .log("{}: {} copies of this worker ended with the device", state_.id, count);
}

}  // namespace gpunbd::storage
