#include "storage/pages/page_pool.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "storage/long_work.hpp"
#include "storage/pages/page_returns.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::uint32_t word_bits = 64;
constexpr std::uint64_t bytes_per_pin_byte = 4096;  // of an export, for what counts its pins
constexpr std::uint64_t preferred_slab = 64 << 20;  // bytes: fits fragmented memory
// A kept slab costs a descriptor.
constexpr std::uint64_t kept_slabs = 64;
constexpr std::uint64_t largest_kept_slab = 1 << 30;  // bytes

void set(std::vector<std::uint64_t>& map, std::uint32_t bit) {
    map[bit / word_bits] |= std::uint64_t{1} << (bit % word_bits);
}
void reset(std::vector<std::uint64_t>& map, std::uint32_t bit) {
    map[bit / word_bits] &= ~(std::uint64_t{1} << (bit % word_bits));
}

bool is_set(const std::vector<std::uint64_t>& map, std::uint32_t bit) {
    return (map[bit / word_bits] >> (bit % word_bits) & 1) != 0;
}

// The first set bit in [from, to), or `to`.
std::uint32_t first_set(const std::vector<std::uint64_t>& map, std::uint32_t from,
                        std::uint32_t to) {
    for (std::uint32_t bit = from; bit < to;) {
        const std::uint64_t word = map[bit / word_bits] >> (bit % word_bits);
        if (word != 0) {
            return std::min(to, bit + static_cast<std::uint32_t>(std::countr_zero(word)));
        }
        bit = (bit / word_bits + 1) * word_bits;
    }
    return to;
}

}  // namespace

std::uint32_t PagePool::slab_pages_for(std::uint64_t pages, std::uint64_t page_size, bool kept) {
    const std::uint64_t wanted = std::max<std::uint64_t>(pages, 1);
    std::uint64_t bytes = preferred_slab;
    if (kept) {
        bytes = std::clamp(std::bit_ceil(wanted * page_size / kept_slabs), preferred_slab,
                           largest_kept_slab);
    }
    return static_cast<std::uint32_t>(
        std::min(std::max<std::uint64_t>(bytes / page_size, 1), std::bit_ceil(wanted)));
}

PagePool::PagePool(Device& device, const Place& place)
    : device_(device),
      number_(place.device),
      page_size_(place.page_size),
      pages_(place.pages),
      provision_(place.provision),
      directory_(place.slabs),
      keeper_(place.keeper),
      ahead_(device.slow_to_allocate() || place.keeper != nullptr),
      slab_count_(place.slabs.slabs()),
      provisioner_([this] { provision(); }) {
    slab_shift_ = static_cast<std::uint32_t>(std::countr_zero(place.slab_pages));
    slab_mask_ = place.slab_pages - 1;
    const std::size_t total = pages_with_numbers();
    slabs_ = std::make_unique<Slab[]>(slab_count_);
    pins_ = PinCounts(total, pages_ * page_size_ / bytes_per_pin_byte);
    retired_ = std::make_unique<std::atomic<bool>[]>(total);
    retired_from_.assign(total, 0);
    pages_in_slab_.assign(slab_count_, 0);
    free_in_slab_.assign(slab_count_, 0);
    clear_in_slab_.assign(slab_count_, 0);
    free_.assign(total / word_bits + 1, 0);
    clear_.assign(total / word_bits + 1, 0);
    has_free_.assign(slab_count_ / word_bits + 1, 0);
    has_clear_.assign(slab_count_ / word_bits + 1, 0);
}

PagePool::~PagePool() {
    provisioner_.end();
    for (std::uint32_t i = 0; i < slab_count_; ++i) {
        if (slabs_[i].bytes != 0) device_.release(slabs_[i]);
    }
    for (; empty_slabs_ > 1 && releases_later(); --empty_slabs_) device_.releases().end();
}

Status PagePool::fill(const std::stop_token& stop) {
    LongWork work("provisioning", device_.info().id, pages_ * page_size_, "bytes");
    std::unique_lock lock(mutex_);
    while (allocated_pages_ < pages_) {
        work.set_done(allocated_pages_ * page_size_);
        if (stop.stop_requested()) return Status::no_space;
        if (const Status status = add_slab(lock); status != Status::ok) return status;
    }
    return Status::ok;
}

// --- mapping ---------------------------------------------------------------------------------

bool PagePool::map_at_once(std::uint64_t number, EntrySlot slot, PageRef& out) {
    std::unique_lock lock(mutex_);
    const PageEntry entry = slot.load();
    PageIndex page = entry.page();
    if (entry.is_mapped()) {
        pin(page);
        out = PageRef(*this, page);
        return true;
    }
    // What others hold still has to be cleared first; else it would have two.
    if (is_its_own(entry, number) || clear_pages_ == 0) return false;
    bool is_clear = true;
    take_free_page(page, is_clear);
    publish(slot, page, out);
    wake_for_work(lock);
    device_.populate(slab(page), offset_in_slab(page), page_size_);
    return true;
}

void PagePool::ask(PageRequest& request) {
    {
        const std::lock_guard lock(mutex_);
        requests_.push(request);
    }
    if (provisioner_.wake()) return;
    // Without a thread nobody comes for them.
    PageRequests refused;
    {
        const std::lock_guard lock(mutex_);
        refused = std::exchange(requests_, PageRequests{});
    }
    while (PageRequest* const each = refused.pop()) {
        each->status = Status::no_space;
        each->returns->put(*each);
    }
}

Status PagePool::map(std::uint64_t number, EntrySlot slot, PageRef& out) {
    const std::lock_guard asking(asking_);
    while (!map_at_once(number, slot, out)) {
        PageIndex page = 0;
        if (pin_its_own(number, slot, page)) return map_its_own(slot, page, out);
        if (const Status status = take(page); status != Status::ok) {
            const std::lock_guard lock(mutex_);
            if (!has_a_page(slot, number)) return status;
        } else if (map_taken(number, slot, page, out)) {
            return Status::ok;
        }
        // Somebody was quicker, with a page that has become ready meanwhile.
    }
    return Status::ok;
}

bool PagePool::pin_its_own(std::uint64_t number, EntrySlot slot, PageIndex& page) {
    const std::lock_guard lock(mutex_);
    const PageEntry entry = slot.load();
    if (!is_its_own(entry, number)) return false;
    page = entry.page();
    pin(page);  // so that it stays retired from this number
    return true;
}

Status PagePool::map_its_own(EntrySlot slot, PageIndex page, PageRef& out) {
    // Those who hold it see that number's contents change, as by any write.
    const Status status = clear(page);
    if (status != Status::ok) {
        unpin(page);
        return status;
    }
    const std::lock_guard lock(mutex_);
    retired_[page].store(false);
    --retired_pages_;
    publish(slot, page, out);
    pins_.remove(page);  // not the last
    return Status::ok;
}

// False: it has one by now, and the page is free again.
bool PagePool::map_taken(std::uint64_t number, EntrySlot slot, PageIndex page, PageRef& out) {
    std::unique_lock lock(mutex_);
    if (!has_a_page(slot, number)) {
        publish(slot, page, out);
        return true;
    }
    ++coming_;
    put_back(page, true, lock);
    wake_for_work(lock);
    return false;
}

void PagePool::publish(EntrySlot slot, PageIndex page, PageRef& out) {
    pin(page);
    out = PageRef(*this, page);
    mapped_pages_.fetch_add(1, std::memory_order_relaxed);
    slot.store(PageEntry::mapped(number_, page));
}

// Is the page that this hole had held still, and to go nowhere else?
bool PagePool::is_its_own(PageEntry entry, std::uint64_t number) const {
    return entry.state() == PageEntry::State::left && retired_[entry.page()].load() &&
           retired_from_[entry.page()] == number;
}

// With one more it would have two.
bool PagePool::has_a_page(EntrySlot slot, std::uint64_t number) const {
    const PageEntry entry = slot.load();
    return entry.is_mapped() || is_its_own(entry, number);
}

void PagePool::unmap(std::uint64_t number, EntrySlot slot) {
    PageIndex page = 0;
    {
        // So that no page is ever neither mapped nor retired nor free: take() counts on it.
        const std::lock_guard lock(mutex_);
        const PageEntry entry = slot.load();
        if (!entry.is_mapped()) return;
        page = entry.page();
        slot.store(PageEntry::left(number_, page));
        mapped_pages_.fetch_sub(1, std::memory_order_relaxed);
        retired_from_[page] = number;
        retired_[page].store(true);
        ++retired_pages_;
    }
    free_if_unpinned(page);
}

// --- pages -----------------------------------------------------------------------------------

Status PagePool::take(PageIndex& page) {
    std::unique_lock lock(mutex_);
    bool is_clear = false;
    while (!take_free_page(page, is_clear)) {
        if (coming_ != 0) {
            came_.wait(lock);
        } else if (const Status status = add_slab(lock);
                   status != Status::ok && coming_ == 0 && free_pages_ == 0) {
            return status;
        }
    }
    wake_for_work(lock);
    if (is_clear) {
        device_.populate(slab(page), offset_in_slab(page), page_size_);
        return Status::ok;
    }
    const Status status = clear(page);
    if (status != Status::ok) {
        lock.lock();
        ++coming_;
        lock.unlock();
        free(page);
    }
    return status;
}

Status PagePool::clear(PageIndex page) {
    return device_.clear(slab(page), offset_in_slab(page), page_size_);
}

bool PagePool::take_free_page(PageIndex& page, bool& is_clear) {
    std::uint32_t number = first_set(has_clear_, 0, slab_count_);
    is_clear = number != slab_count_;
    if (!is_clear) number = first_set(has_free_, 0, slab_count_);
    if (number == slab_count_) return false;
    const PageIndex begin = number << slab_shift_;
    page = first_set(is_clear ? clear_ : free_, begin, begin + slab_mask_ + 1);
    take_out(page, is_clear);
    return true;
}

void PagePool::take_out(PageIndex page, bool is_clear) {
    const std::uint32_t number = page >> slab_shift_;
    reset(free_, page);
    --free_pages_;
    if (free_in_slab_[number] == pages_in_slab_[number]) {
        // One that was to be released is needed after all.
        if (--empty_slabs_ != 0 && releases_later()) device_.releases().end();
    }
    if (--free_in_slab_[number] == 0) reset(has_free_, number);
    if (!is_clear) return;
    reset(clear_, page);
    --clear_pages_;
    if (--clear_in_slab_[number] == 0) reset(has_clear_, number);
}

void PagePool::free_if_unpinned(PageIndex page) {
    {
        // Those who find it unpinned at the same time are told apart here.
        const std::lock_guard lock(mutex_);
        if (!retired_[page].load() || !pins_.none(page)) return;
        retired_[page].store(false);
        --retired_pages_;
        ++coming_;
    }
    free(page);
}

void PagePool::free(PageIndex page) {
    const bool is_clear = device_.discard(slab(page), offset_in_slab(page), page_size_);
    std::unique_lock lock(mutex_);
    put_back(page, is_clear, lock);
    wake_for_work(lock);
}

void PagePool::put_back(PageIndex page, bool is_clear, std::unique_lock<std::mutex>& lock) {
    const std::uint32_t number = page >> slab_shift_;
    set(free_, page);
    set(has_free_, number);
    ++free_pages_;
    if (is_clear) {
        set(clear_, page);
        set(has_clear_, number);
        ++clear_pages_;
        ++clear_in_slab_[number];
    }
    if (++free_in_slab_[number] == pages_in_slab_[number]) {
        // One is kept, so that a page that comes and goes does not allocate each time.
        if (++empty_slabs_ > 1 && provision_ == Provision::thin) {
            if (releases_later()) {
                device_.releases().begin();
            } else {
                release_slab(number, lock);
            }
        }
    }
    came();  // only now: until then the device may have had no memory for a slab
}

// One of those who were about to make something free has done so, or has failed. With the lock
// held.
void PagePool::came() {
    --coming_;
    came_.notify_all();
}

// --- slabs -----------------------------------------------------------------------------------

Status PagePool::add_slab(std::unique_lock<std::mutex>& lock) {
    // No more than the export needs: it may have all that the device has.
    const auto pages = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(pages_ - allocated_pages_, std::uint64_t{slab_mask_} + 1));
    if (pages == 0) return Status::no_space;
    std::uint32_t number = 0;
    while (pages_in_slab_[number] != 0) ++number;
    pages_in_slab_[number] = pages;
    allocated_pages_ += pages;
    ++coming_;
    lock.unlock();
    Slab slab;
    const Status status = allocate(number, pages * page_size_, slab);
    lock.lock();
    came();
    if (status != Status::ok) {
        allocated_pages_ -= pages;
        pages_in_slab_[number] = 0;
        return status;
    }
    slabs_[number] = slab;
    directory_.store(number, {.pages = pages, .kind = slab.kind});
    free_in_slab_[number] = clear_in_slab_[number] = pages;
    for (PageIndex page = number << slab_shift_, end = page + pages; page != end; ++page) {
        set(free_, page);
        set(clear_, page);
    }
    set(has_free_, number);
    set(has_clear_, number);
    free_pages_ += pages;
    clear_pages_ += pages;
    if (++empty_slabs_ > 1 && releases_later()) device_.releases().begin();
    return Status::ok;
}

Status PagePool::allocate(std::uint32_t slab_number, std::uint64_t bytes, Slab& slab) {
    const SlabRequest request{.bytes = bytes, .provision = provision_, .kept = keeper_ != nullptr};
    Status status = Status::no_space;
    try {
        do status = device_.allocate(request, slab);
        while (status == Status::no_space && may_wait_for_others() &&
               device_.releases().wait_for_one());
    } catch (const std::bad_alloc&) {  // not even for what describes a slab
        return Status::no_space;
    }
    if (status != Status::ok || keeper_ == nullptr) return status;
    if (keeper_->keep(number_, slab_number, slab.descriptor)) return Status::ok;
    keeper_->forget(number_, slab_number);  // it may have been too slow
    device_.release(slab);
    return Status::no_space;
}

// Not where pages have come meanwhile: others may be waiting for a slab of ours.
bool PagePool::may_wait_for_others() const {
    const std::lock_guard lock(mutex_);
    return provision_ == Provision::full || free_pages_ == 0;
}

std::string PagePool::adopt(const std::vector<int>& descriptors,
                            const std::vector<bool>& is_mapped) {
    LongWork work("taking over", device_.info().id, pages_with_numbers() * page_size_, "bytes");
    for (std::uint32_t number = 0; number != slab_count_; ++number) {
        const SlabEntry entry = directory_.load(number);
        if (entry.pages == 0) continue;
        work.set_done((std::uint64_t{number} << slab_shift_) * page_size_);
        const int descriptor = number < descriptors.size() ? descriptors[number] : -1;
        if (std::string why = adopt_slab(number, entry, descriptor); !why.empty()) return why;
    }
    for (PageIndex page = 0; page != is_mapped.size(); ++page) {
        if (is_mapped[page] && (page & slab_mask_) >= pages_in_slab_[page >> slab_shift_]) {
            return fmt::format("page {} is used, and its slab is not there", page);
        }
    }
    return {};
}

std::string PagePool::adopt_slab(std::uint32_t slab_number, SlabEntry entry, int descriptor) {
    // As they are made: whole, but for one that has what remains.
    const bool is_whole = entry.pages == slab_mask_ + 1;
    const bool is_rest =
        entry.pages == (pages_ & slab_mask_) && (allocated_pages_ & slab_mask_) == 0;
    if ((!is_whole && !is_rest) || allocated_pages_ + entry.pages > pages_) {
        return fmt::format("slab {} has {} pages, which cannot be", slab_number, entry.pages);
    }
    if (descriptor < 0) return fmt::format("slab {} is missing", slab_number);
    Slab slab;
    const SlabRecord record{
        .bytes = entry.pages * page_size_, .provision = provision_, .kind = entry.kind};
    if (device_.adopt(descriptor, record, slab) != Status::ok) {
        return fmt::format("slab {} cannot be taken over", slab_number);
    }
    slabs_[slab_number] = slab;
    if (slab.cpu == nullptr) unaddressed_.push_back(slab_number);
    pages_in_slab_[slab_number] = entry.pages;
    allocated_pages_ += entry.pages;
    return {};
}

void PagePool::forget_others(const std::vector<int>& descriptors) {
    for (std::uint32_t number = 0; number != descriptors.size(); ++number) {
        if (descriptors[number] < 0) continue;
        if (number >= slab_count_ || slabs_[number].bytes == 0) keeper_->forget(number_, number);
    }
}

// What is not mapped is nobody's, and may be half of what somebody has written.
void PagePool::own_adopted(std::vector<int>& descriptors, const std::vector<bool>& is_mapped) {
    for (std::uint32_t number = 0; number != slab_count_ && number != descriptors.size();
         ++number) {
        if (slabs_[number].descriptor == descriptors[number]) descriptors[number] = -1;
    }
    std::unique_lock lock(mutex_);
    for (PageIndex page = 0; page != is_mapped.size(); ++page) {
        if ((page & slab_mask_) >= pages_in_slab_[page >> slab_shift_]) continue;
        if (is_set(free_, page)) continue;  // of a slab made since
        if (is_mapped[page]) {
            mapped_pages_.fetch_add(1, std::memory_order_relaxed);
            continue;
        }
        ++coming_;
        lock.unlock();
        const bool is_clear = device_.discard(slab(page), offset_in_slab(page), page_size_);
        lock.lock();
        put_back(page, is_clear, lock);
    }
    wake_for_work(lock);
}

void PagePool::leave(const std::vector<int>& adopted) {
    provisioner_.end();
    for (std::uint32_t number = 0; number != slab_count_; ++number) {
        Slab slab = std::exchange(slabs_[number], Slab{});
        if (slab.bytes == 0) continue;
        if (number < adopted.size() && slab.descriptor == adopted[number]) {
            slab.descriptor = -1;  // its owner's still
        } else if (keeper_ != nullptr) {
            directory_.store(number, {});
            keeper_->forget(number_, number);
        }
        device_.release(slab);
    }
}

bool PagePool::releases_later() const { return ahead_ && provision_ == Provision::thin; }

// An empty one, which nobody can have until it is done.
void PagePool::release_slab(std::uint32_t slab_number, std::unique_lock<std::mutex>& lock) {
    Slab slab = std::exchange(slabs_[slab_number], Slab{});
    directory_.store(slab_number, {});
    free_pages_ -= free_in_slab_[slab_number];
    clear_pages_ -= clear_in_slab_[slab_number];
    free_in_slab_[slab_number] = clear_in_slab_[slab_number] = 0;
    for (PageIndex page = slab_number << slab_shift_, end = page + slab_mask_ + 1; page != end;
         ++page) {
        reset(free_, page);
        reset(clear_, page);
    }
    reset(has_free_, slab_number);
    reset(has_clear_, slab_number);
    --empty_slabs_;
    ++coming_;
    lock.unlock();
    if (keeper_ != nullptr) keeper_->forget(number_, slab_number);
    device_.release(slab);
    lock.lock();
    allocated_pages_ -= pages_in_slab_[slab_number];
    pages_in_slab_[slab_number] = 0;
    came();
}

// --- the provisioner -------------------------------------------------------------------------

bool PagePool::has_slab_to_release() const { return releases_later() && empty_slabs_ > 1; }

// Is there too little for others to find, and can that be helped?
bool PagePool::can_prepare() const {
    const std::uint64_t ahead = (std::uint64_t{slab_mask_} + 2) / 2;  // half a slab
    return clear_pages_ < ahead && (clear_pages_ != free_pages_ ||
                                    (provision_ == Provision::thin && allocated_pages_ < pages_));
}

// Lets `lock` go.
void PagePool::wake_for_work(std::unique_lock<std::mutex>& lock) {
    const bool wake = ahead_ && (has_slab_to_release() || can_prepare());
    lock.unlock();
    if (!wake || provisioner_.wake()) return;
    // Without a thread it is ours: others may be waiting for what is to be released.
    lock.lock();
    while (has_slab_to_release()) release_empty_slab(lock);
    lock.unlock();
}

void PagePool::provision() {
    std::unique_lock lock(mutex_);
    providing_ = true;
    while (!resting_) {
        answer_requests(lock);
        if (has_slab_to_release()) {
            release_empty_slab(lock);
        } else if (ahead_ && can_prepare() && prepare(lock) == Status::ok) {
            continue;
        } else if (!address_an_adopted_slab(lock)) {
            break;  // where preparing has failed, who needs a page meets the same, and tells
        }
    }
    providing_ = false;
    came_.notify_all();
}

void PagePool::rest() {
    std::unique_lock lock(mutex_);
    resting_ = true;
    came_.wait(lock, [this] { return !providing_; });
}

void PagePool::go_on() {
    {
        const std::lock_guard lock(mutex_);
        resting_ = false;
    }
    provisioner_.wake();
}

std::vector<std::pair<std::uint32_t, int>> PagePool::copy_descriptors() const {
    std::vector<std::pair<std::uint32_t, int>> copies;
    const std::lock_guard lock(mutex_);
    for (std::uint32_t number = 0; number != slab_count_; ++number) {
        const Slab& slab = slabs_[number];
        if (slab.bytes == 0 || slab.descriptor < 0) continue;
        copies.emplace_back(number, ::fcntl(slab.descriptor, F_DUPFD_CLOEXEC, 0));
    }
    return copies;
}

void PagePool::answer_requests(std::unique_lock<std::mutex>& lock) {
    while (PageRequest* const request = requests_.pop()) {
        lock.unlock();
        {
            PageRef page;
            request->status = map(request->number, request->slot, page);
        }
        request->returns->put(*request);
        lock.lock();
    }
}

Status PagePool::prepare(std::unique_lock<std::mutex>& lock) {
    return clear_pages_ != free_pages_ ? clear_a_page(lock) : add_slab(lock);
}

void PagePool::release_empty_slab(std::unique_lock<std::mutex>& lock) {
    std::uint32_t number = slab_count_ - 1;
    while (pages_in_slab_[number] == 0 || free_in_slab_[number] != pages_in_slab_[number]) --number;
    release_slab(number, lock);
    device_.releases().end();
}

bool PagePool::is_adopted() const {
    const std::lock_guard lock(mutex_);
    return unaddressed_.empty();
}

void PagePool::finish_adoption() noexcept {
    {
        const std::lock_guard lock(mutex_);
        addresses_adopted_ = true;
    }
    provisioner_.wake();  // where there is no thread, all goes through channels
}

// The provisioner's, which releases slabs as well: none goes meanwhile.
bool PagePool::address_an_adopted_slab(std::unique_lock<std::mutex>& lock) {
    if (!addresses_adopted_ || unaddressed_.empty()) return false;
    Slab& slab = slabs_[unaddressed_.back()];
    unaddressed_.pop_back();
    if (slab.bytes == 0 || slab.cpu != nullptr) return true;  // released since, or made anew
    lock.unlock();
    slab.cpu = device_.address(slab);
    lock.lock();
    return true;
}

Status PagePool::clear_a_page(std::unique_lock<std::mutex>& lock) {
    PageIndex page = first_set(free_, 0, slab_count_ << slab_shift_);
    while (is_set(clear_, page)) page = first_set(free_, page + 1, slab_count_ << slab_shift_);
    take_out(page, false);
    ++coming_;
    lock.unlock();
    const Status status = clear(page);
    lock.lock();
    put_back(page, status == Status::ok, lock);
    return status;
}

std::uint64_t PagePool::allocated_bytes() const {
    const std::lock_guard lock(mutex_);
    return allocated_pages_ * page_size_;
}

// Only the last one may be shorter.
std::uint64_t PagePool::allocated_slabs() const {
    const std::lock_guard lock(mutex_);
    return (allocated_pages_ + slab_mask_) >> slab_shift_;
}

std::uint64_t PagePool::retired_bytes() const {
    const std::lock_guard lock(mutex_);
    return retired_pages_ * page_size_;
}

}  // namespace gpunbd::storage
