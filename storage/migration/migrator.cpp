#include "storage/migration/migrator.hpp"

#include <pthread.h>

#include <algorithm>
#include <exception>
#include <tuple>
#include <utility>

#include "storage/base/signals_blocked.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::chrono::seconds tick_interval{10};
// A page that a client is writing is tried again after this time, as often as this.
constexpr std::chrono::milliseconds retry_interval{1};
constexpr int retries = 20;
// An emptied slab is not released while a slow client still reads one of its old pages.
constexpr std::chrono::milliseconds release_timeout{500};

}  // namespace

Migrator::Migrator(Device& device, std::function<Volumes()> volumes, const ChannelOptions& channels)
    : device_(device), volumes_(std::move(volumes)), mover_(channels) {}

Migrator::~Migrator() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
}

void Migrator::start() {
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { run(); });
    ::pthread_setname_np(thread_.native_handle(), "migrator");
}

void Migrator::reclaim(std::uint64_t bytes, Done done) {
    submit({.bytes = bytes, .done = std::move(done)});
}

void Migrator::release(Done done) { submit({.bytes = std::nullopt, .done = std::move(done)}); }

void Migrator::submit(Request request) {
    {
        const std::lock_guard lock(mutex_);
        requests_.push_back(std::move(request));
    }
    changed_.notify_all();
}

Migrator::Totals Migrator::totals() const {
    const std::lock_guard lock(mutex_);
    return totals_;
}

bool Migrator::stopping() const {
    const std::lock_guard lock(mutex_);
    return stopping_;
}

void Migrator::run() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
        if (requests_.empty()) {
            lock.unlock();
            tick();
            lock.lock();
            changed_.wait_for(lock, tick_interval,
                              [this] { return stopping_ || !requests_.empty(); });
            continue;
        }
        const Request request = std::move(requests_.front());
        requests_.pop_front();
        lock.unlock();
        serve(request);
        lock.lock();
    }
}

void Migrator::serve(const Request& request) {
    const auto begin = std::chrono::steady_clock::now();
    Migration out;
    try {
        SlabBudget& budget = device_.budget();
        if (request.bytes) {
            const std::uint64_t used = std::min(budget.used(), budget.limit());
            budget.set_limit(used - std::min(used, *request.bytes));
            move_out(out);
        } else {
            budget.set_limit(SlabBudget::unlimited);
            move_back(out);
        }
    } catch (const std::exception& error) {  // no memory for lists, or no channel
        out.error = error.what();
    }
    out.duration = std::chrono::steady_clock::now() - begin;
    {
        const std::lock_guard lock(mutex_);
        std::uint64_t moved = 0;
        for (const auto& [place, bytes] : out.moved) moved += bytes;
        (request.bytes ? totals_.moved_out : totals_.moved_back) += moved;
        if (request.bytes) {
            totals_.last_reclaim = out.duration;
            totals_.unmet += out.wanted - std::min(out.wanted, out.released);
        }
    }
    request.done(out);
}

// --- away from the device --------------------------------------------------------------------

void Migrator::move_out(Migration& out) {
    const SlabBudget& budget = device_.budget();
    const std::uint64_t limit = budget.limit();
    const std::uint64_t used_before = budget.used();
    out.wanted = used_before - std::min(used_before, limit);
    bool progress = true;
    while (budget.used() > limit && progress && !stopping()) {
        const std::uint64_t used = budget.used();
        std::vector<Candidate> emptied;
        std::uint64_t to_release = 0;
        for (Candidate& candidate : candidates()) {
            if (budget.used() <= limit + to_release || out.spill_full || stopping()) break;
            if (!empty_slab(candidate, out)) continue;
            const PagePool& pool = candidate.volume->pool(candidate.pool);
            to_release += candidate.volume->page_size() * pool.slabs().slab_pages();
            emptied.push_back(std::move(candidate));
        }
        await_release(emptied);
        progress = budget.used() < used;
    }
    const std::uint64_t used = budget.used();
    out.released = used_before - std::min(used_before, used);
}

bool Migrator::empty_slab(const Candidate& candidate, Migration& out) {
    Volume& volume = *candidate.volume;
    PagePool& pool = volume.pool(candidate.pool);
    if (!pool.drain(candidate.slab)) return false;
    std::vector<std::uint64_t> left = candidate.numbers;
    for (int attempt = 0; !left.empty() && attempt != retries && !stopping(); ++attempt) {
        if (attempt != 0) std::this_thread::sleep_for(retry_interval);
        move(volume, pool, pool.spills(), left, out);
        std::erase_if(left, [&](std::uint64_t number) {
            const PageEntry entry = volume.slot(number).load();
            return !entry.is_mapped() || entry.device() != candidate.pool ||
                   pool.slabs().number_of(entry.page()) != candidate.slab;
        });
        if (out.spill_full) break;
    }
    if (left.empty()) return true;
    if (!out.spill_full) out.busy += left.size();
    pool.stop_draining(candidate.slab);
    return false;
}

void Migrator::await_release(const std::vector<Candidate>& emptied) {
    const auto deadline = std::chrono::steady_clock::now() + release_timeout;
    for (const Candidate& candidate : emptied) {
        PagePool& pool = candidate.volume->pool(candidate.pool);
        while (pool.is_allocated(candidate.slab) && std::chrono::steady_clock::now() < deadline) {
            std::this_thread::sleep_for(retry_interval);
        }
        pool.stop_draining(candidate.slab);
    }
}

// Slabs in the order in which they should be emptied: first those that are used least, and of
// these, those with the fewest pages.
std::vector<Migrator::Candidate> Migrator::candidates() {
    std::vector<Candidate> out;
    for (const std::shared_ptr<Volume>& volume : volumes_()) {
        for (std::uint32_t index = 0; index != volume->layout_devices(); ++index) {
            PagePool& pool = volume->pool(index);
            if (&pool.device() != &device_) continue;
            open_channels(*volume);
            const UseHistory& uses = history(volume, pool);
            std::vector<Candidate> slabs(pool.slabs().count());
            for (const Located& located : pages_in(*volume, index)) {
                Candidate& slab = slabs[pool.slabs().number_of(located.page)];
                slab.numbers.push_back(located.number);
                slab.heat += uses.heat(pool, located.page);
            }
            for (std::uint32_t slab = 0; slab != slabs.size(); ++slab) {
                if (!pool.is_allocated(slab)) continue;
                if (!slabs[slab].numbers.empty() && pool.spills().empty()) continue;
                slabs[slab].volume = volume;
                slabs[slab].pool = index;
                slabs[slab].slab = slab;
                out.push_back(std::move(slabs[slab]));
            }
        }
    }
    std::ranges::sort(
        out, {}, [](const Candidate& slab) { return std::tuple(slab.heat, slab.numbers.size()); });
    return out;
}

// --- back --------------------------------------------------------------------------------------

void Migrator::move_back(Migration& out) {
    for (const std::shared_ptr<Volume>& volume : volumes_()) {
        const std::size_t pools = volume->shape().devices.size();
        for (std::uint32_t index = volume->layout_devices(); index != pools; ++index) {
            PagePool& spill = volume->pool(index);
            PagePool& home = volume->pool(volume->shape().devices[index].home);
            if (&home.device() != &device_) continue;
            open_channels(*volume);
            const UseHistory& uses = history(volume, spill);
            std::vector<Located> left = pages_in(*volume, index);
            for (int attempt = 0; !left.empty() && attempt != retries && !stopping(); ++attempt) {
                if (attempt != 0) std::this_thread::sleep_for(retry_interval);
                std::ranges::sort(left, std::greater(), [&](const Located& located) {
                    return uses.heat(spill, located.page);
                });
                std::vector<std::uint64_t> numbers;
                numbers.reserve(left.size());
                for (const Located& located : left) numbers.push_back(located.number);
                PagePool* const targets[] = {&home};
                move(*volume, spill, targets, numbers, out);
                if (out.spill_full) return;  // the device has no memory for the rest
                left = pages_in(*volume, index);
            }
            out.busy += left.size();
        }
    }
}

// --- both ways ---------------------------------------------------------------------------------

void Migrator::move(Volume& volume, PagePool& from, std::span<PagePool* const> targets,
                    std::span<const std::uint64_t> numbers, Migration& out) {
    const PageMover::Result result = mover_.move(volume, from, targets, numbers);
    for (const auto& [target, pages] : result.moved) {
        out.moved[target->device().info().id] += pages * volume.page_size();
    }
    out.failed += result.failed;
    if (result.is_full) out.spill_full = true;
}

std::vector<Migrator::Located> Migrator::pages_in(const Volume& volume, std::uint32_t pool) {
    std::vector<Located> out;
    const std::uint64_t pages = volume.shape().pages();
    for (std::uint64_t number = 0; number != pages; ++number) {
        const PageEntry entry = volume.slot(number).load(std::memory_order_acquire);
        if (entry.is_mapped() && entry.device() == pool) out.push_back({number, entry.page()});
    }
    return out;
}

void Migrator::open_channels(const Volume& volume) {
    for (Device* const device : volume.devices()) mover_.open(*device);
}

UseHistory& Migrator::history(const std::shared_ptr<Volume>& volume, const PagePool& pool) {
    const auto found = histories_.find(&pool);
    if (found != histories_.end() && found->second.volume.lock() == volume) {
        return found->second.uses;
    }
    History fresh{.volume = volume, .uses = UseHistory(pool)};
    return histories_.insert_or_assign(&pool, std::move(fresh)).first->second.uses;
}

// Opens channels ahead of need, because this takes long on a GPU.
void Migrator::tick() {
    std::erase_if(histories_, [](const auto& entry) { return entry.second.volume.expired(); });
    try {
        for (const std::shared_ptr<Volume>& volume : volumes_()) {
            const std::size_t pools = volume->shape().devices.size();
            for (std::uint32_t index = 0; index != pools; ++index) {
                const PagePool& pool = volume->pool(index);
                const PagePool& home = volume->pool(volume->shape().devices[index].home);
                if (&home.device() != &device_) continue;
                open_channels(*volume);
                history(volume, pool).tick(pool);
            }
        }
    } catch (const std::exception&) {  // the next request reports it
    }
}

}  // namespace gpunbd::storage
