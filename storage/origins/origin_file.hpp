#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "storage/base/owned_fd.hpp"
#include "storage/images/image_file.hpp"
#include "storage/origins/origin.hpp"

namespace gpunbd::storage {

// A file or a block device that is locked as long as this object exists: for readers, or
// exclusively if it is writable. Reads and writes of whole blocks pass the page cache, where the
// file system permits that.
class OriginFile final : public Origin {
 public:
    enum class Kind : std::uint8_t { file, block_device };
    // `lock`: see Origin::lock(), from another process that writes to it no more; empty: it gets a
    // new one. A text is the reason why the file cannot be an origin, for users.
    static std::variant<std::unique_ptr<OriginFile>, std::string> open(const std::string& path,
                                                                       Kind kind, bool is_writable,
                                                                       OwnedFd lock = {});

    const std::string& name() const override { return path_; }
    std::uint64_t size() const override { return file_.size(); }
    std::optional<Extent> next_data(std::uint64_t offset) const override;
    bool can_zero() const override { return can_zero_; }
    bool may_have_lost_writes() const override { return true; }  // Linux forgets what it lacks
    const OwnedFd* lock() const override { return writer_ ? &writer_ : nullptr; }
    SourceId id() const override;
    SourceId id_of_contents() const override;

 private:
    // Also an error, unless the file is writable: another program has written to it since it was
    // opened.
    Error do_read(std::uint64_t offset, std::span<std::byte> to) override;
    Error do_write(std::uint64_t offset, std::span<const std::byte> from) override;
    Error do_zero(std::uint64_t offset, std::uint64_t length, bool keeps_space) override;
    Error do_flush() override;
    explicit OriginFile(std::string path) : path_(std::move(path)), file_(path_) {}
    Error open_for_writing(OwnedFd lock);
    Error write_buffered(std::uint64_t offset, std::span<const std::byte> from);

    const std::string path_;
    ImageFile file_;
    OwnedFd writer_;         // empty: it is not writable
    OwnedFd direct_writer_;  // past the page cache; empty: the file system does not allow it
    std::atomic<bool> can_zero_{true};  // until it turns out that it cannot
};

}  // namespace gpunbd::storage
