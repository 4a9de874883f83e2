#include "tests/storage/interleaving/exports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "storage/base/atomic.hpp"
#include "storage/devices/channel.hpp"
#include "tests/storage/interleaving/scheduler.hpp"

namespace gpunbd::interleaving {

using namespace storage;

namespace {

constexpr std::uint64_t page_size = 4096;
using Access = ScheduledAccess<std::uint64_t>;

// The address of a page is that of its words.
std::uint64_t& word_at(std::uint64_t address, unsigned word) {
    return reinterpret_cast<std::uint64_t*>(address)[word];
}

// Slabs have addresses far enough apart that offsets are those of whole pages.
std::uint64_t page_at(const Slab& slab, std::uint64_t offset) {
    return slab.handle + offset / page_size * page_words * sizeof(std::uint64_t);
}

std::uint64_t words_of(const PageRef& page) {
    return page_at(page.slab(), page.address() - page.slab().address);
}

}  // namespace

WordDevice::WordDevice() : Device(0) { info_.id = info_.identity = "words"; }

std::uint64_t WordDevice::read(std::uint64_t address, unsigned word) {
    return Access::load(word_at(address, word), std::memory_order_relaxed);
}

void WordDevice::write(std::uint64_t address, unsigned word, std::uint64_t value) {
    Access::store(word_at(address, word), value, std::memory_order_relaxed);
}

Status WordDevice::allocate(const SlabRequest& request, Slab& out) {
    auto* const words = new std::uint64_t[request.bytes / page_size * page_words]();
    out.handle = reinterpret_cast<std::uintptr_t>(words);
    out.address = page_size;
    out.bytes = request.bytes;
    return Status::ok;
}

void WordDevice::release(Slab& slab) noexcept {
    slab.bytes = 0;  // the arena has the words until the schedule ends
}

Status WordDevice::clear(const Slab& slab, std::uint64_t offset, std::uint64_t) {
    for (unsigned i = 0; i != page_words; ++i) write(page_at(slab, offset), i, 0);
    return Status::ok;
}

Status WordDevice::copy(const Slab& from, std::uint64_t from_offset, const Slab& to,
                        std::uint64_t to_offset, std::uint64_t) {
    for (unsigned i = 0; i != page_words; ++i) {
        write(page_at(to, to_offset), i, read(page_at(from, from_offset), i));
    }
    return Status::ok;
}

bool WordDevice::discard(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) {
    return clear(slab, offset, bytes) == Status::ok;
}

std::unique_ptr<Channel> WordDevice::open_channel(const ChannelOptions&) {
    fail("a copy within a device uses no channel");
}

Exports::Exports(Start start) {
    VolumeOptions options;
    options.size = volume_pages * page_size;
    options.page_size = page_size;
    auto made = Volume::create(options, {&device_}, {}, {},
                               {Spill{.home = 0, .device = &device_, .budget = &spill_budget_}});
    volumes_[0] = std::move(std::get<std::unique_ptr<Volume>>(made));
    if (start == Start::scarce) {
        device_.budget().set_limit(0);
        return;
    }
    if (start == Start::apart) {
        clone(0, 1);
        write(0, 0, 0, 1);
        unmap(0, 0);
        write(1, 0, 0, 2);
        return;
    }
    const unsigned pages = start == Start::full ? 2 : 1;
    for (unsigned page = 0; page != pages; ++page) {
        for (unsigned word = 0; word != page_words; ++word) {
            write(0, page, word, static_cast<std::uint8_t>(1 + page * page_words + word));
        }
    }
    if (start == Start::spilled || start == Start::shared_in_spill) move(0, 0, true);
    if (start >= Start::shared) clone(0, 1);
    if (start == Start::sole) remove(1);
    if (start == Start::shared_in_spill) write(0, 1, 0, 5);
}

std::uint32_t Exports::volumes() const {
    std::uint32_t out = 0;
    for (unsigned i = 0; i != max_volumes; ++i) out |= volumes_[i] != nullptr ? 1U << i : 0;
    return out;
}

Contents Exports::contents() const {
    Contents out{};
    for (unsigned i = 0; i != max_volumes; ++i) {
        for (unsigned page = 0; volumes_[i] != nullptr && page != volume_pages; ++page) {
            const PageRef ref = volumes_[i]->find(page);
            for (unsigned word = 0; !ref.hole() && word != page_words; ++word) {
                out[i][page][word] =
                    static_cast<std::uint8_t>(WordDevice::read(words_of(ref), word));
            }
        }
    }
    return out;
}

// As ReadTransfer does it: the first word as if the page were copied, the second as if it were sent
// in place, if it may be.
void Exports::read(unsigned volume, unsigned page, std::array<std::uint8_t, page_words>& out) {
    bool is_sent = false;
    while (true) {
        const PageRef ref = volumes_[volume]->find(page);
        for (unsigned word = 0; word != (is_sent ? 1 : page_words); ++word) {
            out[word] = ref.hole()
                            ? std::uint8_t{0}
                            : static_cast<std::uint8_t>(WordDevice::read(words_of(ref), word));
        }
        if (ref.hole() || ref.is_intact()) return;
        is_sent = is_sent || ref.access() == storage::Access::send;
    }
}

void Exports::write(unsigned volume, unsigned page, unsigned word, std::uint8_t value) {
    PageRef ref;
    if (volumes_[volume]->map(page, ref) != Status::ok) fail("a page cannot be mapped");
    WordDevice::write(words_of(ref), word, value);
}

// As WriteTransfer does it.
void Exports::fill(unsigned volume, unsigned page, std::uint8_t value) {
    PageRef ref = volumes_[volume]->take_replacement(page);
    const bool replaces = !ref.hole();
    if (!replaces && volumes_[volume]->map(page, ref) != Status::ok) {
        fail("a page cannot be mapped");
    }
    for (unsigned word = 0; word != page_words; ++word) {
        WordDevice::write(words_of(ref), word, value);
    }
    while (replaces && !volumes_[volume]->replace(page, ref)) yield(true);
}

void Exports::unmap(unsigned volume, unsigned page) { volumes_[volume]->unmap(page); }

// As PageMover does it.
void Exports::move(unsigned volume, unsigned page, bool commits, bool unmaps) {
    const EntrySlot slot = volumes_[volume]->slot(page);
    const PageEntry entry = slot.load();
    if (!entry.is_mapped()) return;
    PagePool& from = volumes_[volume]->pool(entry.device());
    PagePool& to = volumes_[volume]->pool(1 - entry.device());
    PageIndex target = 0;
    if (to.memory().take_target(target, {}) != Status::ok) return;  // it has no memory
    PageRef source;
    const auto give_back = [&] { to.memory().put_back(target, PageAllocator::Purpose::fill); };
    if (!from.begin_move(page, slot, source)) return give_back();
    to.device().copy(source.slab(), from.memory().slabs().numbers().offset_in_slab(source.index()),
                     to.memory().slabs().slab_of(target),
                     to.memory().slabs().numbers().offset_in_slab(target), page_size);
    if (unmaps) unmap(volume, page);
    if (commits) {
        if (from.commit_move(page, source.index(), to, target)) return;
    } else {
        from.cancel_move(page, source.index());
    }
    give_back();
}

void Exports::clone(unsigned volume, unsigned to) {
    auto cloned = volumes_[volume]->clone("clone");
    if (auto* const out = std::get_if<std::unique_ptr<Volume>>(&cloned)) {
        volumes_[to] = std::move(*out);
    } else {
        fail(std::get<std::string>(cloned));
    }
}

void Exports::remove(unsigned volume) { volumes_[volume].reset(); }

std::string Exports::check_and_end() {
    std::array<std::shared_ptr<PagePool>, 2> pools;
    for (unsigned i = 0; i != 2; ++i) pools[i] = volumes_[0]->shared_pool(i);
    std::uint64_t mapped = 0;
    for (const auto& pool : pools) {
        if (pool->memory().usage().retired != 0) return "a page is still retired";
        if (pool->memory().pages().filling() != 0) return "a page is still being filled";
        mapped += pool->memory().pages().mapped_pages();
    }
    // A page is counted once for all volumes that have it.
    std::vector<std::uint64_t> words;
    for (const auto& volume : volumes_) {
        for (unsigned page = 0; volume != nullptr && page != volume_pages; ++page) {
            const PageRef ref = volume->find(page);
            if (volume->slot(page).load().is_moving()) return "a page is still moving";
            if (ref.hole()) continue;
            const auto [number, is_shared] = std::pair(words_of(ref), volume->shared(page));
            const bool is_known = std::ranges::find(words, number) != words.end();
            if (is_known && !is_shared) return "a page of two volumes is not shared";
            if (!is_known) words.push_back(number);
        }
    }
    if (mapped != words.size()) return "the count of mapped pages is wrong";
    for (auto& volume : volumes_) {
        for (unsigned page = 0; volume != nullptr && page != volume_pages; ++page) {
            volume->unmap(page);
        }
    }
    for (const auto& pool : pools) {
        if (pool->memory().usage().retired != 0) return "a page is still pinned";
        if (pool->memory().pages().mapped_pages() != 0)
            return "a page of no volume is counted as mapped";
        for (std::uint32_t slab = 0; slab != pool->memory().slabs().count(); ++slab) {
            pool->memory().drain(slab);
            if (pool->memory().kind_of(slab)) return "a page is neither free nor mapped";
        }
    }
    for (unsigned i = max_volumes; i != 0; --i) volumes_[i - 1].reset();
    return {};
}

}  // namespace gpunbd::interleaving
