#include "storage/origins/cached_pages.hpp"

#include <algorithm>
#include <exception>

#include "storage/origins/busy_pages.hpp"
#include "storage/origins/written_pages.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::storage {

namespace {

// Pages in use that the clock passes before it takes the first of them. Clients wait meanwhile.
constexpr std::size_t longest_search = 1024;

}  // namespace

const PageStates& CachedPages::states() const { return volume_.pool(pool_).memory().pages(); }

std::size_t CachedPages::pages_of_slab() const {
    return volume_.pool(pool_).memory().slabs().numbers().slab_pages();
}

void CachedPages::move_to(std::uint32_t pool) {
    pool_ = pool;
    pages_.clear();
}

void CachedPages::remember(std::uint64_t page, bool is_wanted) {
    const PageEntry entry = volume_.slot(page).load();
    if (!entry.is_mapped() || entry.device() != pool_) return;
    const PageIndex index = entry.page();
    try {
        if (index >= pages_.size()) pages_.resize(index + std::size_t{1});
    } catch (const std::exception&) {  // no memory; the page stays
        return;
    }
    pages_[index] = {
        .number = page, .uses = states().uses(index) + (is_wanted ? 1 : 0), .is_ahead = !is_wanted};
}

void CachedPages::remember_written(std::uint64_t page) {
    const PageEntry entry = volume_.slot(page).load();
    if (!entry.is_mapped()) return;
    const bool is_known = entry.page() < pages_.size() && pages_[entry.page()].number == page;
    if (!is_known) remember(page, true);
}

void CachedPages::ignore_use(std::uint64_t page, PageIndex index) {
    if (index < pages_.size() && pages_[index].number == page) ++pages_[index].uses;
}

bool CachedPages::is_here(std::size_t index) const {
    const PageEntry entry = volume_.slot(pages_[index].number).load();
    return entry.is_mapped() && entry.device() == pool_ && entry.page() == index;
}

bool CachedPages::makes_room(std::size_t index) const {
    const std::uint64_t page = pages_[index].number;
    return is_here(index) && !states().is_pinned(static_cast<PageIndex>(index)) &&
           !written_.contains(page) && !busy_.is_used(page);
}

std::optional<CachedPages::Victim> CachedPages::next_victim() {
    std::optional<Victim> found;
    std::size_t used = 0;
    for (std::size_t left = pages_.size(); left != 0 && used != longest_search; --left) {
        const std::size_t index = hand_++ % pages_.size();
        if (!makes_room(index)) continue;
        Page& page = pages_[index];
        const std::uint32_t uses = states().uses(static_cast<PageIndex>(index));
        if (uses == page.uses) return Victim{.page = page.number, .was_wasted = page.is_ahead};
        if (!found) found = {.page = page.number};
        page.uses = uses;
        page.is_ahead = false;
        ++used;
    }
    return found;
}

std::size_t CachedPages::slabs() const {
    return pages_.empty() ? 0 : pages_.size() / pages_of_slab() + 1;
}

std::uint32_t CachedPages::next_slab() {
    const std::size_t slab = hand_ % pages_.size() / pages_of_slab();
    hand_ = (slab + 1) * pages_of_slab();
    return static_cast<std::uint32_t>(slab);
}

std::ranges::iota_view<std::size_t, std::size_t> CachedPages::indices_of(std::uint32_t slab) const {
    const std::size_t begin = slab * pages_of_slab();
    return std::views::iota(begin, std::min(begin + pages_of_slab(), pages_.size()));
}

bool CachedPages::may_drop(std::uint32_t slab) const {
    return std::ranges::all_of(
        indices_of(slab), [&](std::size_t index) { return !is_here(index) || makes_room(index); });
}

}  // namespace gpunbd::storage
