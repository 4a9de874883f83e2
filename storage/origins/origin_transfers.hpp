// Reads and writes of an origin.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "storage/base/status.hpp"
#include "storage/devices/slab_copy.hpp"
#include "storage/origins/busy_pages.hpp"
#include "storage/origins/origin.hpp"
#include "storage/origins/written_pages.hpp"
#include "storage/pages/page_pool.hpp"
#include "storage/pages/page_source.hpp"

namespace gpunbd::storage {

class Volume;

// Copies between an origin and the pages of a volume that caches it. The log says why a copy
// fails. Any thread may call these functions, each with a copier of its own. They block. The caller
// ensures that the pages are not changed meanwhile.
class OriginTransfers {
 public:
    // All three arguments outlive this object.
    OriginTransfers(const Volume& volume, Origin& origin, const std::string& export_name)
        : volume_(volume), origin_(origin), export_name_(export_name) {}

    struct ReadResult {
        Status status = Status::ok;
        std::uint64_t bytes = 0;  // also of a read that failed later
    };
    // Brings parts of a page from the origin to `to`.
    ReadResult read(std::uint64_t page, Parts parts, const PageRef& to, SlabCopier& copier);
    // The same for a page that the origin has no data for.
    ReadResult clear(Parts parts, const PageRef& to, SlabCopier& copier);
    // Brings the rest of a part from the origin, or zeroes: from this byte of the volume on.
    ReadResult read_rest(std::uint64_t offset, bool is_zero, const PageRef& to, SlabCopier& copier);
    // Writes these blocks of a page to the origin. Throws std::bad_alloc, and what
    // Device::open_channel() throws.
    Status write(std::uint64_t page, const WriteRecords::Blocks& blocks, const PageRef& from,
                 SlabCopier& copier);
    // Zeroes the range in the origin, and in memory where it is only a part of a page.
    Status zero(const ZeroRequest& zero, SlabCopier& copier) noexcept;
    Status flush() noexcept;

    // Those that a request changes, and those that it changes as a whole.
    PageRange pages_of(const ZeroRequest& zero) const;
    PageRange whole_pages_of(const ZeroRequest& zero) const;

    // An error is logged once until the origin works again. `what`: follows "its origin".
    void log_error(const char* what, const std::string& why) noexcept;
    void log_loss(const std::string& why) noexcept { log_line("lacks data", why); }

 private:
    // Fills these parts, or bytes, of a page. `get` brings the bytes from an offset in the page on.
    using Get = std::function<Status(std::uint64_t offset, std::span<std::byte> memory)>;
    Status fill(Parts parts, const PageRef& to, SlabCopier& copier, const Get& get);
    Status fill_bytes(std::uint64_t begin, std::uint64_t length, const PageRef& to,
                      SlabCopier& copier, const Get& get);
    // Whole blocks of the origin, and zeroes after its end. Adds to ReadResult::bytes.
    Status read_bytes(std::uint64_t offset, std::span<std::byte> memory, std::uint64_t& bytes);
    Status write_run(std::uint64_t offset, std::uint64_t length, SlabPosition from,
                     SlabCopier& copier);
    Origin::Error zero_origin(const ZeroRequest& zero);
    Status zero_memory(const ZeroRequest& zero, SlabCopier& copier);
    void log_line(const char* what, const std::string& why) noexcept;

    const Volume& volume_;
    Origin& origin_;
    const std::string& export_name_;
    std::atomic<bool> has_failed_{false};  // the last read or write
};

}  // namespace gpunbd::storage
