#include "storage/origins/origin_clone.hpp"

#include <fmt/format.h>

#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/devices/page_completions.hpp"

namespace gpunbd::storage {

std::variant<std::unique_ptr<Volume>, std::string> OriginClone::make(
    const std::shared_ptr<Volume>& base, const KeepOptions& keep,
    std::optional<std::uint64_t> size) {
    GPUNBD_ASSERT(base->cache() != nullptr, "only the cache of an origin has such clones");
    if (size.value_or(base->size()) < base->size()) {
        return fmt::format("its size of {} bytes is less than the {} bytes of its source", *size,
                           base->size());
    }
    if (base->pool(0).device().failed()) return "its device has failed";
    auto made = Volume::create({.size = size.value_or(base->size()),
                                .page_size = base->page_size(),
                                .may_exceed_memory = true,
                                .is_clone_of_cache = true,
                                .complete = false},
                               {&base->pool(0).device()}, {}, keep);
    if (std::holds_alternative<CapacityError>(made)) return "its device has no memory";
    auto volume = std::move(std::get<std::unique_ptr<Volume>>(made));
    volume->kept_clone().set_source(dynamic_cast<OriginCache&>(*base->cache()).id_of_contents());
    volume->set_complete();
    volume->set_source(std::make_unique<OriginClone>(*volume, base));
    return volume;
}

std::optional<std::string> OriginClone::continue_with(Volume& volume,
                                                      const std::shared_ptr<Volume>& base) {
    GPUNBD_ASSERT(volume.kept_clone().is_clone(), "only a clone of a cache has one as its source");
    const auto* const cache = dynamic_cast<const OriginCache*>(base->cache());
    if (cache == nullptr) return "it has no origin any more";
    if (cache->can_be_written_to()) return "its origin is writable now";
    const SourceId known = volume.kept_clone().source();
    if (cache->id_of_contents() != known || base->page_size() != volume.page_size() ||
        base->size() > volume.size()) {
        return cache->name() + " has changed or is another one since the clone was made";
    }
    if (&base->pool(0).device() != &volume.pool(0).device()) return "it is on another device now";
    volume.set_source(std::make_unique<OriginClone>(volume, base));
    return std::nullopt;
}

OriginClone::OriginClone(Volume& volume, std::shared_ptr<Volume> base)
    : volume_(volume),
      base_(std::move(base)),
      cache_(dynamic_cast<OriginCache&>(*base_->cache())),
      marks_(volume.kept_clone()) {}

OriginClone::~OriginClone() = default;

bool OriginClone::has(std::uint64_t page) const {
    return page < base_->pages() && !marks_.is_zeroed(page) && base_->has_contents(page);
}

bool OriginClone::lacks(std::uint64_t page, Parts parts) const {
    return has(page) && base_->source()->lacks(page, parts);
}

PageRef OriginClone::find(std::uint64_t page, Parts parts) const {
    if (page >= base_->pages() || marks_.is_zeroed(page)) return {};
    return base_->find(page, parts);
}

void OriginClone::fetch(PageRequest& request) noexcept { cache_.fetch(request); }

void OriginClone::map(PageRequest& request) noexcept {
    request.parts = volume_.division().all();  // the whole page is copied
    if (base_->missing_parts(request.number) == 0) {
        cache_.copy_to(*this, request);
    } else {
        cache_.fetch(request);  // the waiter calls again
    }
}

void OriginClone::make_room(PageRequest& request) noexcept { cache_.make_room_in(*this, request); }

void OriginClone::zeroed(std::uint64_t page) {
    const Lock lock(mutex_);
    marks_.set_zeroed(page);
}

Status OriginClone::copy_page(std::uint64_t page, SlabCopier& copier) {
    const PageRef from = find(page, volume_.division().all());
    if (from.hole()) return Status::ok;  // it was evicted; the waiter looks again
    if (!from.device().readable() || has_failed_device()) return Status::io_error;
    PageRef to;
    Status status = volume_.take_page(page, to);
    if (status != Status::ok) return status;
    status = copier.copy(from.position(), to.position(), volume_.page_size());
    if (status == Status::ok) {
        const Lock lock(mutex_);
        if (!marks_.is_zeroed(page) && volume_.fill_hole(page, to)) return Status::ok;
    }
    PagePool::give_up(std::move(to));  // also if a client has zeroed or written the whole page
    return status;
}

bool OriginClone::has_failed_device() const { return volume_.pool(0).device().failed(); }

Status OriginClone::make_room_for(std::uint64_t page) {
    if (has_failed_device()) return Status::io_error;
    PageRef taken;
    const Status status = volume_.take_page(page, taken);
    if (status == Status::ok) PagePool::give_up(std::move(taken));
    return status;
}

}  // namespace gpunbd::storage
