// The state that a killed process leaves: the bytes of a page table, and the slabs whose
// descriptors are kept. Also fake kept parts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "storage/base/owned_fd.hpp"
#include "storage/pages/pool_config.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::storage::test {

// The words of a page that tests check: the first, one in the middle, and the last.
using PageWords = std::array<std::uint64_t, 3>;
std::array<std::uint64_t, 3> places_in(std::uint64_t page_size);

class FakeParts final : public KeptParts {
 public:
    using Number = std::pair<std::uint32_t, std::uint32_t>;  // device, slab

    // Calls `cut` before and after each change.
    explicit FakeParts(std::function<void()> cut = {}) : cut_(std::move(cut)) {}

    bool keep_table(const OwnedFd& descriptor) noexcept override {
        table = OwnedFd::copy_of(descriptor);
        return true;
    }
    bool keep_directory(const OwnedFd& descriptor) noexcept override {
        directory = OwnedFd::copy_of(descriptor);
        return true;
    }
    bool keep(std::uint32_t device, std::uint32_t slab,
              const OwnedFd& descriptor) noexcept override;
    void drop(std::uint32_t device, std::uint32_t slab) noexcept override;
    bool keeps() const noexcept override { return true; }

    std::vector<Number> numbers() const;
    // Copies for Volume::take_over.
    Volume::Descriptors copies() const;
    void each(const std::function<void(Number, const OwnedFd&)>& call) const;
    void refuse(bool is_refusing);
    // Keeps slabs but reports failure, as if they were stored too late.
    void keep_too_late(bool is_late);

    OwnedFd table;
    OwnedFd directory;

 private:
    void tell() const {
        if (cut_) cut_();
    }

    const std::function<void()> cut_;
    mutable std::mutex mutex_;
    std::map<Number, OwnedFd> kept_;
    bool refuses_ = false;
    bool keeps_too_late_ = false;
};

struct CrashImage {
    struct OfSlab {
        std::uint64_t bytes = 0;
        std::vector<PageWords> pages;
        bool operator==(const OfSlab&) const = default;
    };
    std::vector<std::byte> table;
    std::map<FakeParts::Number, OfSlab> slabs;
    bool operator==(const CrashImage&) const = default;
};

std::vector<std::byte> bytes_in(const OwnedFd& file);
// A memory file with these bytes, and zeroes up to `size`.
OwnedFd file_with(const std::vector<std::byte>& bytes, std::uint64_t size = 0);
// The same for a page table, without the zeroes at its end.
std::vector<std::byte> table_in(const OwnedFd& file);
OwnedFd file_with_table(const std::vector<std::byte>& bytes);

CrashImage read_image(const OwnedFd& table, const FakeParts& store, std::uint64_t page_size);
// Restores an image in new files. `store` gets the slabs; the table is returned.
OwnedFd restore_image(const CrashImage& image, std::uint64_t page_size, FakeParts& store);

}  // namespace gpunbd::storage::test
