#include "tests/server/daemon/control_plane/page_contents.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "storage/images/restore_image.hpp"
#include "storage/images/volume_reader.hpp"

namespace gpunbd::server::test {

namespace {

constexpr std::size_t distance = 4096;  // bytes between the repetitions of a page's number
// Staging memory takes longer to allocate than all that is copied here.
constexpr storage::ChannelOptions channels{.chunk_size = 64 << 10, .pinned = 1 << 20};

std::uint64_t number_at(const std::byte* at) {
    std::uint64_t number = 0;
    std::memcpy(&number, at, sizeof number);
    return number;
}

std::uint64_t contents_of(std::span<const std::byte> page) {
    const std::uint64_t first = number_at(page.data());
    for (std::size_t at = distance; at < page.size(); at += distance) {
        if (number_at(page.data() + at) != first) return torn_page;
    }
    return first;
}

class Numbers final : public storage::VolumeSink {
 public:
    explicit Numbers(const storage::Volume& volume)
        : page_size_(volume.page_size()), pages_(volume.pages()) {}

    std::optional<std::string> hole(std::uint64_t length) override {
        at_ += length;
        return {};
    }
    std::optional<std::string> run(std::uint64_t /*length*/) override { return {}; }
    std::optional<std::string> data(const std::byte* from, std::uint64_t length) override {
        for (std::uint64_t end = at_ + length; at_ < end;) {
            const std::uint64_t offset = at_ % page_size_;
            const std::uint64_t part = std::min(end - at_, page_size_ - offset);
            std::uint64_t& page = pages_.at(at_ / page_size_);
            const std::uint64_t number = from == nullptr ? 0 : contents_of({from, part});
            page = offset == 0 || page == number ? number : torn_page;
            if (from != nullptr) from += part;
            at_ += part;
        }
        return {};
    }
    const std::vector<std::uint64_t>& pages() const { return pages_; }

 private:
    const std::uint64_t page_size_;
    std::uint64_t at_ = 0;
    std::vector<std::uint64_t> pages_;
};

// The way of clients, which takes longer.
std::vector<std::uint64_t> read_by_channel(storage::Volume& volume) {
    Numbers numbers(volume);
    storage::VolumeReader reader(volume, channels);
    const auto why = reader.read(volume.size(), {}, numbers, [](std::uint64_t) {});
    if (why) throw std::runtime_error("an export cannot be read: " + *why);
    return numbers.pages();
}

}  // namespace

void fill_page(std::span<std::byte> page, std::uint64_t contents) {
    for (std::size_t at = 0; at < page.size(); at += distance) {
        std::memcpy(page.data() + at, &contents, sizeof contents);
    }
}

bool write_page(storage::Volume& volume, std::uint64_t page, std::uint64_t contents) {
    const std::uint64_t size = volume.page_size();
    {
        storage::PageRef memory;
        if (volume.map(page, memory) != storage::Status::ok) return false;
        if (memory.cpu() != nullptr) {
            fill_page({memory.cpu(), size}, contents);
            return true;
        }
    }
    const auto fill = [contents](std::span<std::byte> memory) {
        fill_page(memory, contents);
        return std::nullopt;
    };
    return !storage::VolumeWriter(volume, channels).write(page * size, size, fill);
}

std::vector<std::uint64_t> read_pages(storage::Volume& volume) {
    std::vector<std::uint64_t> pages(volume.pages());
    for (std::uint64_t i = 0; i != pages.size(); ++i) {
        const storage::PageRef page = volume.find(i);
        if (page.hole()) continue;
        if (page.cpu() == nullptr) return read_by_channel(volume);
        pages[i] = contents_of({page.cpu(), volume.page_size()});
    }
    return pages;
}

}  // namespace gpunbd::server::test
