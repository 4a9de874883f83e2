#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "storage/base/mutex.hpp"
#include "storage/origins/origin_cache.hpp"
#include "storage/pages/page_source.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::storage {

// The source of a writable volume that begins with the contents of an origin. Pages that clients
// have not changed are read from the cache of the origin, which all such volumes share; a page that
// is changed is copied into the volume first.
class OriginClone final : public PageSource {
 public:
    // A volume on the device of `base`, which is the cache of an origin that is never written to.
    // It takes memory as clients write, of which there may be less than its size. `size`: bytes;
    // the volume ends with holes if it is larger. It can be kept, whether `base` is or not. A text
    // is the reason for a failure.
    static std::variant<std::unique_ptr<Volume>, std::string> make(
        const std::shared_ptr<Volume>& base, const KeepOptions& keep,
        std::optional<std::uint64_t> size);
    // Gives such a volume, which was taken over from another process, its source again. A text is
    // the reason why `base` is not what it was a clone of. Nothing has changed then.
    static std::optional<std::string> continue_with(Volume& volume,
                                                    const std::shared_ptr<Volume>& base);

    OriginClone(Volume& volume, std::shared_ptr<Volume> base);
    ~OriginClone() override;

    bool has(std::uint64_t page) const override;
    bool lacks(std::uint64_t page, Parts parts) const override;
    PageRef find(std::uint64_t page, Parts parts) const override;
    void fetch(PageRequest& request) noexcept override;
    void map(PageRequest& request) noexcept override;
    void make_room(PageRequest& request) noexcept override;
    void zeroed(std::uint64_t page) override EXCLUDES(mutex_);

    // For the workers of the cache: do what map() and make_room() ask for. They block.
    Status copy_page(std::uint64_t page, SlabCopier& copier) EXCLUDES(mutex_);
    Status make_room_for(std::uint64_t page);

 private:
    bool has_failed_device() const;

    Volume& volume_;
    const std::shared_ptr<Volume> base_;
    OriginCache& cache_;     // of base_
    const KeptClone marks_;  // of volume_
    Mutex
        mutex_;  // held while a page is zeroed, and while one is mapped with the origin's contents
};

}  // namespace gpunbd::storage
