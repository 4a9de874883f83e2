#include "storage/migration/migrator.hpp"

#include <pthread.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <iterator>
#include <new>
#include <tuple>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/base/signals_blocked.hpp"
#include "storage/migration/full_provision.hpp"

namespace gpunbd::storage {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds tick_interval{10};
// A page that a client is writing is tried again after this time, as often as this.
constexpr std::chrono::milliseconds retry_interval{1};
constexpr int retries = 20;
// An emptied slab is not released while a slow client still reads one of its old pages.
constexpr std::chrono::milliseconds release_timeout{500};
// Pools with channels for copies ahead of need. Others open them at their first copy, and close
// them when there has been none for a while.
constexpr std::size_t max_prepared_pools = 16;
// Pages that return together: enough work for all threads.
constexpr std::uint64_t batch_bytes = 1 << 30;
// Slabs that are emptied together: fewer, because they are released while the next ones are
// emptied, and other programs wait for the last release.
constexpr std::uint64_t emptied_together = 256 << 20;
// A limited rate is kept over this time.
constexpr std::uint64_t batches_per_second = 50;

PagePool* any_spill(PagePool&) { return nullptr; }

// A spill pool whose memory is not that of the host; null: there is none.
PagePool* lasting_spill(PagePool& pool) {
    const std::span<PagePool* const> spills = pool.spills();
    const auto found = std::ranges::find_if(spills, [](const PagePool* spill) {
        return !spill->device().is_system_memory() && !spill->device().failed();
    });
    return found == spills.end() ? nullptr : *found;
}

bool contains(std::span<const PagePool* const> pools, const PagePool* pool) {
    return std::ranges::find(pools, pool) != pools.end();
}

}  // namespace

Migrator::Migrator(Device& device, std::function<Volumes()> volumes, const MigratorOptions& options)
    : device_(device), volumes_(std::move(volumes)), options_(options) {}

Migrator::~Migrator() {
    {
        const Lock lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
}

void Migrator::start() {
    const SignalsBlocked blocked;
    GPUNBD_ASSERT(!thread_.joinable(), "a migrator is started once");
    thread_ = std::thread([this] { run(); });
    ::pthread_setname_np(thread_.native_handle(), "migrator");
}

void Migrator::reclaim(std::uint64_t bytes, Done done) {
    submit({.direction = Direction::out, .bytes = bytes, .done = std::move(done)});
}

void Migrator::release(std::uint64_t bytes, Done done) {
    submit({.direction = Direction::back, .bytes = bytes, .done = std::move(done)});
}

void Migrator::claim(Amount bytes, Done done) {
    submit({.direction = Direction::out, .done = std::move(done), .amount = std::move(bytes)});
}

void Migrator::end_claim(Amount bytes, Done done) {
    submit({.direction = Direction::back, .done = std::move(done), .amount = std::move(bytes)});
}

void Migrator::give_up_revocable(std::uint64_t bytes, Done done) {
    submit({.direction = Direction::fixed, .bytes = bytes, .done = std::move(done)});
}

void Migrator::prepare(Done done) {
    submit({.direction = Direction::none, .done = std::move(done)});
}

void Migrator::submit(Request request) {
    {
        const Lock lock(mutex_);
        requests_.push_back(std::move(request));
    }
    changed_.notify_all();
}

Migrator::Totals Migrator::totals() const {
    const Lock lock(mutex_);
    return totals_;
}

bool Migrator::stopping() const {
    const Lock lock(mutex_);
    return stopping_;
}

void Migrator::run() {
    movers_.emplace(options_.channels, options_.threads);
    Lock lock(mutex_);
    while (!stopping_) {
        if (requests_.empty()) {
            {
                const Unlock unlock(mutex_);
                tick();
            }
            changed_.wait_for(mutex_, tick_interval, [this]() REQUIRES(mutex_) {
                return stopping_ || !requests_.empty();
            });
            continue;
        }
        const Request request = std::move(requests_.front());
        requests_.pop_front();
        const Unlock unlock(mutex_);
        serve(request);
    }
    lock.unlock();
    movers_.reset();
}

void Migrator::serve(const Request& request) {
    GPUNBD_ASSERT(request.done != nullptr, "the result of a request has a receiver");
    const auto begin = Clock::now();
    SlabBudget& budget = device_.budget();
    Migration out;
    try {
        const std::uint64_t bytes = request.amount ? request.amount() : request.bytes;
        if (request.direction == Direction::none) {
            visit_pools();
        } else if (request.direction == Direction::out) {
            lower_limit(bytes, request.amount != nullptr, out);
        } else if (request.direction == Direction::fixed) {
            give_up_revocable(bytes, out);
        } else {
            const std::uint64_t above = SlabBudget::unlimited - budget.limit();
            budget.set_limit(budget.limit() + std::min(above, bytes));
            LongWork work("moving back", device_.info().id, 0, "bytes");
            const Shown shown(*this, work);
            move_back(out);
            refill(out);
        }
    } catch (const std::exception& error) {  // no memory for lists, or no channel
        try {
            out.error = error.what();
        } catch (const std::bad_alloc&) {
            out.error = "no memory";  // so short that the string does not allocate
        }
    }
    out.duration = Clock::now() - begin;
    count(request.direction, out);
    request.done(std::move(out));
}

void Migrator::count(Direction direction, const Migration& out) {
    if (direction == Direction::none) return;
    std::uint64_t moved = 0;
    for (const auto& [place, bytes] : out.moved) moved += bytes;
    const Lock lock(mutex_);
    totals_.failed += out.failed;
    if (direction == Direction::fixed) return;
    if (direction == Direction::back) {
        ++totals_.releases;
        totals_.moved_back += moved;
        return;
    }
    ++totals_.reclaims;
    totals_.moved_out += moved;
    totals_.unmet += out.missing();
    totals_.last_reclaim = out.duration;
    totals_.last_reclaim_end = std::chrono::system_clock::now();
}

// --- away from the device --------------------------------------------------------------------

void Migrator::lower_limit(std::uint64_t bytes, bool is_claim, Migration& out) {
    SlabBudget& budget = device_.budget();
    const std::uint64_t limit = budget.limit();
    const std::uint64_t used = std::min(budget.used(), limit);
    const std::uint64_t wanted = used - std::min(used, bytes);
    LongWork work("moving out", device_.info().id, used - wanted, "bytes");
    const Shown shown(*this, work);
    budget.set_limit(wanted);
    const auto settle = [&] {
        const std::uint64_t stays = std::min(used, budget.used());
        if (stays > wanted) budget.set_limit(is_claim && stays == used ? limit : stays);
        const std::uint64_t before = limit == SlabBudget::unlimited ? used : limit;
        out.lowered = used - std::min(used, budget.limit());
        out.limit_fell = before - std::min(before, budget.limit());
    };
    try {
        move_out(out);
    } catch (...) {  // no channel, or no memory for lists
        settle();
        throw;
    }
    settle();
}

void Migrator::move_out(Migration& out) {
    const SlabBudget& budget = device_.budget();
    const std::uint64_t limit = budget.limit();
    const std::uint64_t used_before = budget.used();
    out.wanted = used_before - std::min(used_before, limit);
    bool freed = true;
    while (freed && options_.drop_unused && budget.used() > limit && !stopping()) {
        const std::uint64_t used = budget.used();
        freed = options_.drop_unused(device_) && budget.used() < used;
    }
    const std::uint64_t used_afterwards = budget.used();
    out.freed = used_before - std::min(used_before, used_afterwards);
    bool progress = true;
    while (budget.used() > limit && progress && !stopping()) {
        const std::uint64_t used = budget.used();
        out.busy = 0;  // those of the last round remain
        empty_slabs(limit, out);
        progress = budget.used() < used;
    }
    const std::uint64_t used = budget.used();
    out.released = used_before - std::min(used_before, used);
}

// Empties slabs until enough memory is on its way back to the device, and waits for that.
void Migrator::empty_slabs(std::uint64_t limit, Migration& out) {
    const Volumes volumes = volumes_();  // they outlive the slabs
    std::vector<Candidate> slabs = candidates(volumes);
    FullProvision promised(volumes, device_);
    try {
        std::vector<Candidate*> emptied;
        Pools full;
        auto next = slabs.begin();
        while (!stopping()) {
            const std::uint64_t excess = excess_above(limit, emptied);
            std::vector<Candidate*> batch;
            std::uint64_t bytes = 0;
            for (; next != slabs.end() && bytes < std::min(excess, emptied_together); ++next) {
                if (!next->pages.empty() && contains(full, next->owner)) continue;
                if (!promised.may_leave(*next->owner, next->bytes)) {
                    out.no_room = true;
                    continue;
                }
                if (!next->owner->memory().drain(next->slab)) continue;  // it has been released
                promised.leave(*next->owner, next->bytes);
                batch.push_back(&*next);
                bytes += next->bytes;
            }
            if (batch.empty()) break;
            move_out(batch, any_spill, full, out);
            std::ranges::copy_if(batch, std::back_inserter(emptied), &Candidate::is_emptied);
        }
        await_release(emptied);
    } catch (...) {
        stop_draining(slabs);
        throw;
    }
}

// How much of the device's memory is used above the limit, without slabs that will be released.
std::uint64_t Migrator::excess_above(std::uint64_t limit,
                                     std::span<Candidate* const> emptied) const {
    std::uint64_t leaving = 0;
    for (const Candidate* slab : emptied) {
        if (slab->is_allocated()) leaving += slab->bytes;
    }
    const std::uint64_t used = device_.budget().used();
    return used - std::min(used, limit + std::min(leaving, SlabBudget::unlimited - limit));
}

// Moves the pages of these slabs, which are draining. Slabs with pages that stay are not draining
// afterwards.
void Migrator::move_out(std::span<Candidate* const> slabs, const Target& target, Pools& full,
                        Migration& out) {
    std::vector<PageToMove> pages;
    for (int attempt = 0; attempt != retries && !stopping(); ++attempt) {
        bool waits = false;
        pages.clear();
        for (Candidate* slab : slabs) {
            PagePool& owner = *slab->owner;
            if (slab->is_droppable()) {
                drop_pages(*slab, out);
                waits = waits || !slab->pages.empty();
                continue;
            }
            if (contains(full, &owner)) continue;
            for (const Candidate::Page& page : slab->pages) {
                pages.push_back({.volume = page.volume,
                                 .from = &owner,
                                 .to = target(owner),
                                 .number = page.number});
            }
        }
        if (pages.empty() && !waits) break;
        if (attempt != 0) std::this_thread::sleep_for(retry_interval);
        move(pages, full, out);
        for (Candidate* slab : slabs) {
            std::erase_if(slab->pages,
                          [&](const Candidate::Page& page) { return !slab->has_page(page); });
        }
    }
    for (const Candidate* slab : slabs) {
        if (slab->is_emptied()) continue;
        if (!contains(full, slab->owner)) out.busy += slab->pages.size();
        slab->owner->memory().stop_draining(slab->slab);
    }
}

// Pages with changes stay until their origin has these.
void Migrator::drop_pages(Candidate& slab, Migration& out) {
    std::erase_if(slab.pages, [&](const Candidate::Page& page) {
        if (!page.volume->cache()->drop(page.number)) return false;
        out.dropped += page.volume->page_size();
        return true;
    });
}

bool Migrator::Candidate::has_page(const Page& page) const {
    const PageEntry entry = page.volume->slot(page.number).load();
    return entry.is_mapped() && entry.device() == pool &&
           owner->memory().slabs().numbers().slab_of(entry.page()) == slab;
}

void Migrator::await_release(std::span<Candidate* const> emptied) {
    const auto deadline = Clock::now() + release_timeout;
    for (const Candidate* slab : emptied) {
        while (slab->is_allocated() && Clock::now() < deadline) {
            std::this_thread::sleep_for(retry_interval);
        }
        slab->owner->memory().stop_draining(slab->slab);
    }
}

// Slabs in the order in which they should be emptied: first those without pages and those with
// pages that their origin has, then those that are used least, and of these, those with the fewest
// pages.
std::vector<Migrator::Candidate> Migrator::candidates(const Volumes& volumes) {
    std::vector<Candidate> out = find_slabs(volumes);
    std::erase_if(out, [](const Candidate& slab) {
        return !slab.is_emptied() && !slab.is_droppable() && slab.owner->spills().empty();
    });
    std::ranges::sort(out, {}, [](const Candidate& slab) {
        return std::tuple(!slab.is_emptied(), !slab.is_droppable(), slab.heat, slab.pages.size());
    });
    // Without memory for a page, an export with a source cannot be read.
    Pools kept;
    for (auto slab = out.rbegin(); slab != out.rend(); ++slab) {
        if (!slab->is_droppable() || contains(kept, slab->owner)) continue;
        kept.push_back(slab->owner);
        slab->owner = nullptr;
    }
    std::erase_if(out, [](const Candidate& slab) { return slab.owner == nullptr; });
    return out;
}

// All slabs of the device.
std::vector<Migrator::Candidate> Migrator::find_slabs(const Volumes& volumes) {
    std::vector<Candidate> out;
    for (const std::shared_ptr<Volume>& volume : volumes) open_channels(*volume);
    for (const Sharing& sharing : pools_of(volumes, false)) {
        PagePool& pool = *sharing.pool;
        const Volume& volume = *volumes[sharing.volumes.front()];
        const UseHistory& uses = history(volume.shared_pool(sharing.index));
        const std::vector<Located> pages = pages_in(volumes, sharing);
        std::vector<Candidate> slabs(pool.memory().slabs().count());  // it may have grown until now
        for (const Located& located : pages) {
            Candidate& slab = slabs[pool.memory().slabs().numbers().slab_of(located.page)];
            slab.pages.push_back(
                {.volume = volumes[located.volume].get(), .number = located.number});
            slab.heat += uses.heat(pool, located.page);
        }
        for (std::uint32_t slab = 0; slab != slabs.size(); ++slab) {
            if (!pool.memory().kind_of(slab)) continue;
            slabs[slab].owner = &pool;
            slabs[slab].pool = sharing.index;
            slabs[slab].slab = slab;
            const SlabEntry entry = pool.memory().slabs().directory().entry(slab);
            slabs[slab].generation = entry.generation;
            slabs[slab].bytes = entry.pages * volume.page_size();
            out.push_back(std::move(slabs[slab]));
        }
    }
    return out;
}

void Migrator::give_up_revocable(std::uint64_t bytes, Migration& out) {
    const Volumes volumes = volumes_();  // they outlive the slabs
    std::vector<Candidate> all = find_slabs(volumes);
    std::erase_if(all, [](const Candidate& slab) {
        return slab.owner->memory().kind_of(slab.slab) != SlabKind::revocable;
    });
    std::ranges::sort(all, std::greater(), [](const Candidate& slab) {
        return std::tuple(slab.is_emptied(), slab.heat);
    });
    out.wanted = bytes;
    try {
        Pools full;  // no memory on the device
        Pools full_spill;
        const auto itself = [](PagePool& pool) { return &pool; };
        for (auto next = all.begin(); next != all.end() && out.missing() != 0 && !stopping();) {
            std::vector<Candidate*> batch;
            std::uint64_t drained = 0;
            for (; next != all.end() && drained < std::min(out.missing(), emptied_together);
                 ++next) {
                if (!next->owner->memory().drain(next->slab)) continue;  // it has been released
                batch.push_back(&*next);
                drained += next->bytes;
            }
            move_out(batch, itself, full, out);
            std::vector<Candidate*> left;
            for (Candidate* const slab : batch) {
                if (slab->is_emptied() || lasting_spill(*slab->owner) == nullptr) continue;
                if (slab->owner->memory().drain(slab->slab)) left.push_back(slab);
            }
            move_out(left, lasting_spill, full_spill, out);
            std::erase_if(batch, [](const Candidate* slab) { return !slab->is_emptied(); });
            await_release(batch);
            for (const Candidate* const slab : batch) out.released += slab->bytes;
        }
    } catch (...) {
        stop_draining(all);
        throw;
    }
}

void Migrator::stop_draining(std::span<const Candidate> slabs) {
    for (const Candidate& slab : slabs) slab.owner->memory().stop_draining(slab.slab);
}

// --- back --------------------------------------------------------------------------------------

void Migrator::move_back(Migration& out) {
    Pools full;
    for (int attempt = 0; attempt != retries && !stopping(); ++attempt) {
        Spilled spilled = find_spilled(full);
        out.busy = spilled.pages.size();
        if (spilled.pages.empty()) return;
        if (attempt != 0) std::this_thread::sleep_for(retry_interval);
        if (!move_back(spilled, full, out)) return;
    }
    out.busy = find_spilled(full).pages.size();
}

// Moves the pages in batches, so that a limited rate is kept and other requests do not wait long.
// False: another request waits.
bool Migrator::move_back(const Spilled& spilled, Pools& full, Migration& out) {
    auto next = spilled.pages.begin();
    while (next != spilled.pages.end()) {
        if (!wait_for_return()) {
            out.cut_short = true;
            return false;
        }
        const auto begin = Clock::now();
        const std::uint64_t rate = return_rate_;
        const std::uint64_t most =
            rate == 0 ? batch_bytes : std::min(batch_bytes, rate / batches_per_second);
        Volumes volumes;  // a volume that is removed does not have to wait longer than a batch
        for (const auto& volume : spilled.volumes) volumes.push_back(volume.lock());
        std::vector<PageToMove> batch;
        std::uint64_t bytes = 0;
        do {
            const Spilled::Page& page = *next++;
            Volume* const volume = volumes[page.volume].get();
            if (volume == nullptr) continue;
            PagePool& spill = volume->pool(page.pool);
            GPUNBD_ASSERT(spill.memory().slabs().config().home < volume->layout_devices(),
                          "pages return to a device of the layout");
            if (contains(full, &spill)) continue;
            PagePool& home = volume->pool(spill.memory().slabs().config().home);
            batch.push_back({.volume = volume, .from = &spill, .to = &home, .number = page.number});
            bytes += volume->page_size();
        } while (bytes < most && next != spilled.pages.end());
        const std::uint64_t moved = move(batch, full, out);
        if (rate == 0) continue;
        const std::chrono::duration<double> needed(static_cast<double>(moved) /
                                                   static_cast<double>(rate));
        return_time_ = begin + std::chrono::duration_cast<Clock::duration>(needed);
    }
    return true;
}

// Waits until the next page may return. False: another request waits, or the migrator stops.
bool Migrator::wait_for_return() {
    const Lock lock(mutex_);
    return !changed_.wait_until(mutex_, return_time_, [this]() REQUIRES(mutex_) {
        return stopping_ || !requests_.empty();
    });
}

// Volumes with Provision::full get their slabs back before they need them.
void Migrator::refill(Migration& out) {
    for (const std::shared_ptr<Volume>& volume : volumes_()) {
        if (volume->shape().provision != Provision::full) continue;
        for (std::uint32_t index = 0; index != volume->layout_devices(); ++index) {
            PagePool& pool = volume->pool(index);
            while (&pool.device() == &device_ && pool.memory().usage().missing != 0) {
                if (!wait_for_return()) {
                    out.cut_short = true;
                    return;
                }
                if (pool.memory().add_missing_slab() == Status::ok) continue;
                out.no_room = true;
                break;
            }
        }
    }
}

// The pages that should return, the most recently used ones first.
Migrator::Spilled Migrator::find_spilled(const Pools& full) {
    Spilled out;
    const Volumes volumes = volumes_();
    for (const std::shared_ptr<Volume>& volume : volumes) open_channels(*volume);
    out.volumes.assign(volumes.begin(), volumes.end());
    for (const Sharing& sharing : pools_of(volumes, true)) {
        const PagePool& spill = *sharing.pool;
        if (contains(full, &spill)) continue;
        const UseHistory& uses =
            history(volumes[sharing.volumes.front()]->shared_pool(sharing.index));
        for (const Located& located : pages_in(volumes, sharing)) {
            out.pages.push_back({.volume = located.volume,
                                 .pool = sharing.index,
                                 .heat = uses.heat(spill, located.page),
                                 .number = located.number});
        }
    }
    std::ranges::sort(out.pages, {}, [](const Spilled::Page& page) {
        return std::tuple(~page.heat, page.volume, page.number);
    });
    return out;
}

// --- both ways ---------------------------------------------------------------------------------

std::uint64_t Migrator::move(std::span<PageToMove> pages, Pools& full, Migration& out) {
    movers_->move(pages);
    std::uint64_t moved = 0;
    for (const PageToMove& page : pages) {
        switch (page.outcome) {
            case PageToMove::Outcome::stayed:
                break;
            case PageToMove::Outcome::moved:
                GPUNBD_ASSERT(page.to != nullptr, "a page that has moved knows its pool");
                out.moved[page.to->device().info().id] += page.volume->page_size();
                moved += page.volume->page_size();
                if (work_ != nullptr) work_->set_done(work_moved_ += page.volume->page_size());
                break;
            case PageToMove::Outcome::no_room:
                out.no_room = true;
                if (!contains(full, page.from)) full.push_back(page.from);
                break;
            case PageToMove::Outcome::failed:
                ++out.failed;
                break;
        }
    }
    return moved;
}

// A page that several volumes share is found once.
std::vector<Migrator::Located> Migrator::pages_in(const Volumes& volumes, const Sharing& sharing) {
    std::vector<Located> out;
    std::vector<bool> seen;
    for (const std::uint32_t volume : sharing.volumes) {
        const std::uint64_t pages = volumes[volume]->pages();
        for (std::uint64_t number = 0; number != pages; ++number) {
            const PageEntry entry = volumes[volume]->slot(number).load(std::memory_order_acquire);
            if (!entry.is_mapped() || entry.device() != sharing.index) continue;
            if (entry.page() >= seen.size())
                seen.resize(sharing.pool->memory().slabs().page_numbers());
            if (seen[entry.page()]) continue;
            seen[entry.page()] = true;
            out.push_back({.volume = volume, .number = number, .page = entry.page()});
        }
    }
    return out;
}

// The pools on the device, or those of spill memory for its pages.
std::vector<Migrator::Sharing> Migrator::pools_of(const Volumes& volumes, bool spills) const {
    std::vector<Sharing> out;
    std::map<const PagePool*, std::size_t> known;
    for (std::uint32_t number = 0; number != volumes.size(); ++number) {
        const Volume& volume = *volumes[number];
        const std::uint32_t pools = volume.pools();
        for (std::uint32_t index = 0; index != pools; ++index) {
            if (!is_ours(volume, index) || spills != (index >= volume.layout_devices())) continue;
            if (spills && !volume.has_spills()) continue;  // the reserve of a cache
            PagePool& pool = volume.pool(index);
            const auto [found, is_new] = known.try_emplace(&pool, out.size());
            if (is_new) out.push_back({.pool = &pool, .index = index, .volumes = {}});
            out[found->second].volumes.push_back(number);
        }
    }
    return out;
}

// Whether the pool is on the device, or has spill memory for its pages.
bool Migrator::is_ours(const Volume& volume, std::uint32_t pool) const {
    return &volume.pool(volume.pool(pool).memory().slabs().config().home).device() == &device_;
}

void Migrator::open_channels(const Volume& volume) {
    // Otherwise no page of it moves.
    if (!volume.has_spills() && device_.info().revocable == 0) return;
    std::vector<Device*> devices;
    const std::uint32_t pools = volume.pools();
    for (std::uint32_t index = 0; index != pools; ++index) {
        if (is_ours(volume, index)) devices.push_back(&volume.pool(index).device());
    }
    movers_->open(devices);
    prepare_copies(volume);
}

// Pages that are shared are copied when they are written, wherever they are.
void Migrator::prepare_copies(const Volume& volume) {
    for (std::uint32_t index = 0; index != volume.layout_devices(); ++index) {
        const std::shared_ptr<PagePool>& pool = volume.shared_pool(index);
        if (!is_ours(volume, index) || is_prepared(pool)) continue;
        if (prepared_pools_.size() >= max_prepared_pools || !pool->shares_spilled_pages()) continue;
        prepared_pools_.push_back(pool);
        try {
            pool->open_copy_channels();
        } catch (const std::exception&) {  // the first copy repeats it, and reports it
        }
    }
}

// Does not own the pool meanwhile: pools end in an order.
bool Migrator::is_prepared(const std::shared_ptr<PagePool>& pool) const {
    return std::ranges::any_of(prepared_pools_, [&](const std::weak_ptr<PagePool>& each) {
        return !each.owner_before(pool) && !pool.owner_before(each);
    });
}

void Migrator::close_idle_copies(const Volume& volume) const {
    for (std::uint32_t index = 0; index != volume.layout_devices(); ++index) {
        if (!is_ours(volume, index) || is_prepared(volume.shared_pool(index))) continue;
        volume.shared_pool(index)->close_idle_copy_channels();
    }
}

UseHistory& Migrator::history(const std::shared_ptr<PagePool>& pool) {
    const auto found = histories_.find(pool.get());
    if (found != histories_.end() && found->second.pool.lock() == pool) return found->second.uses;
    History fresh{.pool = pool, .uses = UseHistory(*pool)};
    return histories_.insert_or_assign(pool.get(), std::move(fresh)).first->second.uses;
}

// Opens channels ahead of need, because this takes long on a GPU.
void Migrator::tick() {
    std::erase_if(histories_, [](const auto& entry) { return entry.second.pool.expired(); });
    prepared_pools_.clear();
    try {
        visit_pools();
        for (const std::shared_ptr<Volume>& volume : volumes_()) close_idle_copies(*volume);
    } catch (const std::exception&) {  // the next request reports it
    }
}

void Migrator::visit_pools() {
    const Volumes volumes = volumes_();
    for (const std::shared_ptr<Volume>& volume : volumes) open_channels(*volume);
    for (const bool spills : {false, true}) {
        for (const Sharing& sharing : pools_of(volumes, spills)) {
            history(volumes[sharing.volumes.front()]->shared_pool(sharing.index))
                .tick(*sharing.pool);
        }
    }
    exchange_pages();
}

}  // namespace gpunbd::storage
