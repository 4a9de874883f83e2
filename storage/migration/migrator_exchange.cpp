// Pages that are used often leave revocable slabs, and pages that are used rarely take their
// places. When another program takes the revocable memory, clients then lose as little speed as
// possible.
#include <algorithm>

#include "storage/migration/migrator.hpp"

namespace gpunbd::storage {

namespace {

// A page has been used since the last tick or the one before, or for at least four ticks not.
constexpr std::uint32_t hot = UseHistory::hottest / 2;
constexpr std::uint32_t cold = UseHistory::hottest / 32;
// At each tick and for each pool, so that clients do not notice it.
constexpr std::uint64_t most_bytes = 1 << 30;

}  // namespace

void Migrator::exchange_pages() {
    // While memory is short, nothing moves that does not have to.
    if (device_.budget().limit() != SlabBudget::unlimited || device_.use(0).yielded != 0) return;
    const Volumes volumes = volumes_();
    for (const Sharing& sharing : pools_of(volumes, false)) {
        // Their origin has the pages, so revocable memory is good enough for them.
        if (volumes[sharing.volumes.front()]->cache() != nullptr) continue;
        exchange_pages(volumes, sharing);
    }
}

void Migrator::exchange_pages(const Volumes& volumes, const Sharing& sharing) {
    PagePool& pool = *sharing.pool;
    std::vector<std::optional<SlabKind>> kinds(pool.memory().slabs().count());
    for (std::uint32_t slab = 0; slab != kinds.size(); ++slab) {
        kinds[slab] = pool.memory().kind_of(slab);
    }
    if (std::ranges::find(kinds, SlabKind::revocable) == kinds.end()) return;
    const Volume& volume = *volumes[sharing.volumes.front()];
    UseHistory& uses = history(volume.shared_pool(sharing.index));
    std::vector<Located> misplaced;
    std::vector<Located> replacements;
    for (const Located& located : pages_in(volumes, sharing)) {
        const std::uint32_t slab = pool.memory().slabs().numbers().slab_of(located.page);
        if (slab >= kinds.size()) continue;  // it is new
        const std::uint32_t heat = uses.heat(pool, located.page);
        if (kinds[slab] == SlabKind::revocable) {
            if (heat >= hot) misplaced.push_back(located);
        } else if (heat <= cold) {
            replacements.push_back(located);
        }
    }
    const std::size_t most = std::min({misplaced.size(), replacements.size(),
                                       static_cast<std::size_t>(most_bytes / volume.page_size())});
    // Not more at once than one slab that is allocated for this has room for.
    const std::size_t step = pool.memory().slabs().numbers().slab_pages();
    for (std::size_t done = 0; done < most && wait_for_return(); done += step) {
        const std::size_t count = std::min(step, most - done);
        const auto part = [&](const std::vector<Located>& all) {
            return std::span(all).subspan(done, count);
        };
        const std::size_t moved = move_to(SlabKind::fixed, part(misplaced), volumes, pool, uses);
        move_to(SlabKind::revocable, part(replacements).first(moved), volumes, pool, uses);
        if (moved == 0) return;
    }
}

// Returns how many pages have moved.
std::size_t Migrator::move_to(SlabKind kind, std::span<const Located> pages, const Volumes& volumes,
                              PagePool& pool, UseHistory& uses) {
    std::vector<PageToMove> moves;
    for (const Located& each : pages) {
        moves.push_back({.volume = volumes[each.volume].get(),
                         .from = &pool,
                         .to = &pool,
                         .kind = kind,
                         .number = each.number});
    }
    movers_->move(moves);
    std::size_t moved = 0;
    for (std::size_t i = 0; i != moves.size(); ++i) {
        if (moves[i].outcome != PageToMove::Outcome::moved) continue;
        ++moved;
        const PageEntry entry = moves[i].volume->slot(pages[i].number).load();
        if (entry.is_mapped()) uses.moved(pool, pages[i].page, entry.page());
    }
    return moved;
}

}  // namespace gpunbd::storage
