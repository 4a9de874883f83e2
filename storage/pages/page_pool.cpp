#include "storage/pages/page_pool.hpp"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace gpunbd::storage {

namespace {

constexpr std::uint32_t word_bits = 64;
constexpr std::uint64_t bytes_per_pin_byte = 4096;  // of an export, for what counts its pins

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

PagePool::PagePool(Device& device, std::uint64_t page_size, std::uint64_t pages,
                   Provision provision)
    : device_(device), page_size_(page_size), pages_(pages), provision_(provision) {
    const std::uint64_t wanted = std::max<std::uint64_t>(pages, 1);
    const std::uint64_t pages_per_slab =
        std::min(std::max<std::uint64_t>(preferred_slab / page_size, 1), std::bit_ceil(wanted));
    slab_shift_ = static_cast<std::uint32_t>(std::countr_zero(pages_per_slab));
    slab_mask_ = static_cast<PageIndex>(pages_per_slab - 1);
    const std::uint64_t slabs = (wanted + pages_per_slab - 1) / pages_per_slab;
    slab_count_ = static_cast<std::uint32_t>(slabs);
    const auto total = static_cast<std::size_t>(slabs * pages_per_slab);
    slabs_ = std::make_unique<Slab[]>(slab_count_);
    pins_ = PinCounts(total, pages * page_size / bytes_per_pin_byte);
    retired_ = std::make_unique<std::atomic<bool>[]>(total);
    retired_from_.assign(total, 0);
    pages_in_slab_.assign(slab_count_, 0);
    free_in_slab_.assign(slab_count_, 0);
    clear_in_slab_.assign(slab_count_, 0);
    free_.assign(total / word_bits + 1, 0);
    clear_.assign(total / word_bits + 1, 0);
    has_free_.assign(slab_count_ / word_bits + 1, 0);
    has_clear_.assign(slab_count_ / word_bits + 1, 0);
    if (device.slow_to_allocate()) {
        provisioner_ = std::make_unique<Provisioner>([this] { prepare(); });
    }
}

PagePool::~PagePool() {
    provisioner_.reset();
    for (std::uint32_t i = 0; i < slab_count_; ++i) {
        if (slabs_[i].bytes != 0) device_.release(slabs_[i]);
    }
}

Status PagePool::fill(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (allocated_pages_ < pages_) {
        if (stop.stop_requested()) return Status::no_space;
        if (const Status status = add_slab(lock); status != Status::ok) return status;
    }
    return Status::ok;
}

Status PagePool::add_slab(std::unique_lock<std::mutex>& lock) {
    // No more than the export needs: it may have all that the device has.
    const auto pages = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(pages_ - allocated_pages_, std::uint64_t{slab_mask_} + 1));
    if (pages == 0) return Status::no_space;
    allocated_pages_ += pages;
    ++coming_;
    lock.unlock();
    Slab slab;
    const Status status = allocate(pages * page_size_, slab);
    lock.lock();
    came();
    if (status != Status::ok) {
        allocated_pages_ -= pages;
        return status;
    }
    std::uint32_t number = 0;
    while (slabs_[number].bytes != 0) ++number;
    slabs_[number] = slab;
    pages_in_slab_[number] = free_in_slab_[number] = clear_in_slab_[number] = pages;
    for (PageIndex page = number << slab_shift_, end = page + pages; page != end; ++page) {
        set(free_, page);
        set(clear_, page);
    }
    set(has_free_, number);
    set(has_clear_, number);
    free_pages_ += pages;
    clear_pages_ += pages;
    ++empty_slabs_;
    return Status::ok;
}

Status PagePool::take(PageIndex& page) {
    std::unique_lock lock(mutex_);
    bool is_clear = false;
    while (!take_free_page(page, is_clear)) {
        if (coming_ != 0) {
            came_.wait(lock);
        } else if (const Status status = add_slab(lock); status != Status::ok && coming_ == 0) {
            return status;
        }
    }
    const bool wake = provisioner_ != nullptr && can_prepare();
    lock.unlock();
    if (wake) provisioner_->wake();
    if (is_clear) {
        device_.populate(slab(page), offset_in_slab(page), page_size_);
    } else {
        const Status status = clear(page);
        if (status != Status::ok) {
            lock.lock();
            ++coming_;
            lock.unlock();
            free(page);
            return status;
        }
    }
    return Status::ok;
}

std::optional<Status> PagePool::take_back(PageIndex page, std::uint64_t number) {
    const auto is_its_own = [&] { return retired_[page].load() && retired_from_[page] == number; };
    {
        const std::lock_guard lock(mutex_);
        if (!is_its_own()) return std::nullopt;
        retired_[page].store(false);
        --retired_pages_;
    }
    const Status status = clear(page);
    if (status != Status::ok) retire(number, [page] { return std::optional(page); });
    return status;
}

Status PagePool::clear(PageIndex page) {
    return device_.clear(slab(page), offset_in_slab(page), page_size_);
}

Status PagePool::allocate(std::uint64_t bytes, Slab& slab) {
    try {
        return device_.allocate({.bytes = bytes, .provision = provision_}, slab);
    } catch (const std::bad_alloc&) {  // not even for what describes a slab
        return Status::no_space;
    }
}

// One of those who were about to make something free has done so, or has failed. With the lock
// held.
void PagePool::came() {
    --coming_;
    came_.notify_all();
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
    if (free_in_slab_[number] == pages_in_slab_[number]) --empty_slabs_;
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
    const bool wake = provisioner_ != nullptr && can_prepare();
    lock.unlock();
    if (wake) provisioner_->wake();
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
        ++empty_slabs_;
        // One is kept, so that a page that comes and goes does not allocate each time.
        if (provision_ == Provision::thin && empty_slabs_ > 1) {
            Slab dropped = take_out_slab(number);
            lock.unlock();
            device_.release(dropped);
            lock.lock();
        }
    }
    came();  // only now: until then the device may have had no memory for a slab
}

// Is there too little for take() to find, and can that be helped?
bool PagePool::can_prepare() const {
    const std::uint64_t ahead = (std::uint64_t{slab_mask_} + 2) / 2;  // half a slab
    return clear_pages_ < ahead && (clear_pages_ != free_pages_ ||
                                    (provision_ == Provision::thin && allocated_pages_ < pages_));
}

void PagePool::prepare() {
    std::unique_lock lock(mutex_);
    while (can_prepare()) {
        const Status status = clear_pages_ != free_pages_ ? clear_a_page(lock) : add_slab(lock);
        if (status != Status::ok) return;  // who needs a page meets the same, and tells
    }
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

// An empty one: it is the caller's to release.
Slab PagePool::take_out_slab(std::uint32_t slab_number) {
    const Slab slab = std::exchange(slabs_[slab_number], Slab{});
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
    allocated_pages_ -= pages_in_slab_[slab_number];
    pages_in_slab_[slab_number] = 0;
    --empty_slabs_;
    return slab;
}

std::uint64_t PagePool::allocated_bytes() const {
    const std::lock_guard lock(mutex_);
    return allocated_pages_ * page_size_;
}

std::uint64_t PagePool::retired_bytes() const {
    const std::lock_guard lock(mutex_);
    return retired_pages_ * page_size_;
}

}  // namespace gpunbd::storage
