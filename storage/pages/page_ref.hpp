// A pinned page, or a hole.
#pragma once

#include <cstddef>
#include <cstdint>

#include "storage/assertions/assert.hpp"
#include "storage/pages/page_allocator.hpp"

namespace gpunbd::storage {

// Move-only; unpins the page when it is destroyed.
class PageRef {
 public:
    PageRef() = default;
    // Adopts a pin.
    PageRef(PageAllocator& owner, PageIndex page, Access access)
        : owner_(&owner), page_(page), access_(access) {
        if (access != Access::write) claims_ = owner.pages().claims(page);
    }
    PageRef(PageRef&& other) noexcept
        : owner_(other.owner_), page_(other.page_), claims_(other.claims_), access_(other.access_) {
        other.owner_ = nullptr;
    }
    PageRef& operator=(PageRef&& other) noexcept {
        if (this != &other) {
            reset();
            owner_ = other.owner_;
            page_ = other.page_;
            claims_ = other.claims_;
            access_ = other.access_;
            other.owner_ = nullptr;
        }
        return *this;
    }
    ~PageRef() { reset(); }
    void reset() {
        if (owner_ != nullptr) owner_->unpin(page_, access_);
        owner_ = nullptr;
    }

    // A second pin of the page.
    PageRef again() const {
        owner().pin(page_, access_);
        PageRef out(owner(), page_, access_);
        out.claims_ = claims_;
        return out;
    }

    bool hole() const { return owner_ == nullptr; }
    // The pool of which it is a page.
    PageAllocator& owner() const {
        GPUNBD_ASSERT(owner_ != nullptr, "a hole has no page");
        return *owner_;
    }
    Device& device() const { return owner().slabs().device(); }
    const Slab& slab() const { return owner().slabs().slab_of(page_); }
    // Null if the CPU cannot address the page.
    std::byte* cpu() const { return owner().slabs().cpu_of(page_); }
    std::uint64_t address() const { return owner().slabs().address_of(page_); }
    PageIndex index() const {
        GPUNBD_ASSERT(owner_ != nullptr, "a hole has no page");
        return page_;
    }
    Access access() const { return access_; }
    // False: the volume in which the page was found for reading may have lost it meanwhile, and
    // another volume may have written to it. What was read has to be read again.
    bool is_intact() const {
        GPUNBD_ASSERT(access_ != Access::write, "a page that is read may have been lost");
        return owner().pages().claims(page_) == claims_;
    }

 private:
    PageAllocator* owner_ = nullptr;
    PageIndex page_ = 0;
    std::uint32_t claims_ = 0;  // when it was pinned
    Access access_ = Access::read;
};

}  // namespace gpunbd::storage
