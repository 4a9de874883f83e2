// Volumes that are saved and restored.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stop_token>

#include "storage/images/image_file.hpp"
#include "storage/images/replaced_file.hpp"
#include "storage/images/restore_image.hpp"
#include "storage/images/save_image.hpp"
#include "storage/images/volume_reader.hpp"
#include "tests/storage/memory_device.hpp"
#include "tests/storage/pages/words.hpp"
#include "tests/storage/random.hpp"
#include "tests/storage/sizes.hpp"
#include "tests/temporary_folder.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

constexpr std::uint64_t image_page = 64 * kib;
constexpr std::uint64_t image_pages = 40;

std::unique_ptr<Volume> image_volume(Device& device) {
    return checked(Volume::create({.size = image_pages * image_page - 512, .page_size = image_page},
                                  {&device}));
}

std::string save(Volume& volume, const std::string& path, bool zstd) {
    std::uint64_t last = 0;
    const auto why = save_image(volume, {}, path, {.zstd = zstd, .threads = 2}, {},
                                [&](std::uint64_t done) { last = done; });
    if (!why) CHECK(last == volume.size());
    return why.value_or("");
}

std::string restore(const std::string& path, Volume& volume) {
    return restore_image(path, volume, {}, {}, [](std::uint64_t) {}).value_or("");
}

void write_page(Volume& volume, std::uint64_t page, int value) {
    PageRef ref = map_page(volume, page);
    std::memset(reinterpret_cast<void*>(ref.address()), value, image_page - 512);
}

void write_some_pages(Volume& volume) {
    for (const int page : {0, 1, 5, 6, 7, 30, 39}) {
        write_page(volume, static_cast<std::uint64_t>(page), page + 1);
    }
}

// The first `pages` pages have the same contents and holes.
void check_same_pages(const Volume& a, const Volume& b, std::uint64_t pages) {
    for (std::uint64_t page = 0; page != pages; ++page) {
        CAPTURE(page);
        const PageRef one = a.find(page), other = b.find(page);
        CHECK(one.hole() == other.hole());
        if (one.hole() || other.hole()) continue;
        CHECK(std::memcmp(reinterpret_cast<void*>(one.address()),
                          reinterpret_cast<void*>(other.address()), image_page - 512) == 0);
    }
}

TEST_CASE("image: a restored volume has the contents and the holes of the saved one") {
    const gpunbd::test::TemporaryFolder folder;
    for (const bool zstd : {false, true}) {
        CAPTURE(zstd);
        MemoryDevice device(0, {});
        const auto volume = image_volume(device);
        write_some_pages(*volume);
        // The name alone makes a compressed file as well.
        const std::string path = folder.path(zstd ? "image.zst" : "raw");
        CHECK(save(*volume, path, false) == "");
        ImageFile file(path);
        REQUIRE_FALSE(file.open());
        CHECK(file.compressed() == zstd);
        CHECK(checked(image_size(path)) == volume->size());
        const auto restored = image_volume(device);
        CHECK(restore(path, *restored) == "");
        check_same_pages(*volume, *restored, image_pages);
        CHECK(save(*volume, folder.path("none/file"), zstd) ==
              folder.path("none/file: No such file or directory"));
    }
}

TEST_CASE("image: a smaller volume gets the beginning of a file, if that is asked for") {
    const gpunbd::test::TemporaryFolder folder;
    for (const bool zstd : {false, true}) {
        // The new end is within a run of data, at its end, in a hole, and at the beginning of data.
        for (const std::uint64_t pages : {1, 2, 4, 5, 8, 20, 39}) {
            CAPTURE(zstd);
            CAPTURE(pages);
            MemoryDevice device(0, {});
            const auto volume = image_volume(device);
            write_some_pages(*volume);
            const std::string path = folder.path("image");
            REQUIRE(save(*volume, path, zstd) == "");
            const auto small = image_volume(device);
            REQUIRE(small->resize(pages * image_page) == "");
            CHECK(
                restore(path, *small)
                    .ends_with("bytes, and the export only " + std::to_string(pages * image_page)));
            CHECK(small->mapped_bytes() == 0);
            CHECK_FALSE(restore_image(
                path, *small, {}, {}, [](std::uint64_t) {}, LargerImage::cut));
            check_same_pages(*volume, *small, pages);
        }
    }
}

TEST_CASE("image: a volume that is resized meanwhile is not saved, and the earlier file stays") {
    const gpunbd::test::TemporaryFolder folder;
    for (const bool zstd : {false, true}) {
        for (const std::uint64_t pages : {image_pages / 4, 2 * image_pages}) {
            CAPTURE(zstd);
            CAPTURE(pages);
            MemoryDevice device(0, {});
            const auto volume = image_volume(device);
            for (const std::uint64_t page : {0, 20}) write_page(*volume, page, 7);
            const std::string path = folder.path("image");
            REQUIRE(save(*volume, path, zstd) == "");
            const std::uint64_t size = volume->size();
            const auto resize = [&](std::uint64_t done) {
                if (done == image_page) REQUIRE(volume->resize(pages * image_page) == "");
            };
            CHECK(save_image(*volume, {}, path, {.zstd = zstd}, {}, resize) ==
                  "it was resized meanwhile; save it again");
            CHECK(image_size(path) == std::variant<std::uint64_t, std::string>(size));
            const std::filesystem::directory_iterator files(folder.path());
            CHECK(std::distance(begin(files), end(files)) == 1);
        }
    }
}

TEST_CASE("image: a compressed file that is damaged anywhere is refused") {
    const gpunbd::test::TemporaryFolder folder;
    MemoryDevice device(0, {});
    const auto volume = image_volume(device);
    write_page(*volume, 3, 7);
    const std::string path = folder.path("image");
    REQUIRE(save(*volume, path, true) == "");
    const std::string good = folder.read("image");
    for (std::size_t length = ImageRecord::bytes; length < good.size(); ++length) {
        CAPTURE(length);
        folder.write("image", good.substr(0, length));
        const auto target = image_volume(device);
        CHECK(restore(path, *target).starts_with(path + ": it is damaged"));
    }
}

struct Damage {
    std::string_view name;
    std::string contents;
    std::string_view why;  // the beginning of the reason
};

std::string record(ImageRecord::Kind kind, std::uint64_t length, std::uint64_t skip = 0) {
    const auto bytes = ImageRecord{.kind = kind, .length = length, .skip = skip}.encode();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST_CASE("image: a file that is no image is refused") {
    using enum ImageRecord::Kind;
    constexpr std::uint64_t back_to_end = -std::uint64_t{2 * ImageRecord::bytes};
    const std::string own = record(image, 1024) + record(hole, 1024) + record(end, 1024);
    const std::vector<Damage> rows{
        {"empty", "", "it is empty"},
        {"size 0", record(image, 0) + record(end, 0), "it is damaged: its size is 0 bytes"},
        {"size", record(image, ~std::uint64_t{0}),
         "it is damaged: its size is 18446744073709551615"},
        {"backward skip",
         record(image, 1024) + record(hole, 512, ImageRecord::bytes) + record(end, 1024) +
             record(hole, 512, back_to_end),
         "it is damaged at byte 160"},
        {"a file of zstd", "\x28\xb5\x2f\xfd\x24", "it is compressed by zstd"},
        {"a file of pzstd", "\x50\x2a\x4d\x18" + std::string(100, 'x'), "it is compressed by zstd"},
        {"a part of the first record", own.substr(0, 20), "it is damaged"},
    };
    const gpunbd::test::TemporaryFolder folder;
    MemoryDevice device(0, {});
    for (const Damage& row : rows) {
        CAPTURE(row.name);
        const std::string path = folder.write("image", row.contents);
        const auto target = image_volume(device);
        const std::string why = restore(path, *target);
        CAPTURE(why);
        CHECK(why.starts_with(path + ": " + std::string(row.why)));
    }
}

TEST_CASE("image: a file that is written while it is restored is refused") {
    const gpunbd::test::TemporaryFolder folder;
    MemoryDevice device(0, {});
    const auto volume = image_volume(device);
    for (const std::uint64_t page : {0, 30}) write_page(*volume, page, 7);
    const std::string path = folder.path("image");
    const std::uint64_t size = volume->size();
    const auto append = [&] { std::ofstream(path, std::ios::binary | std::ios::app) << "more"; };
    const std::vector<std::pair<std::string_view, std::function<void()>>> changes{
        {"grows", append},
        {"grows behind a hole",
         [&] {
             std::filesystem::resize_file(path, size + (8 << 20));
             append();
         }},
        {"shrinks", [&] { std::filesystem::resize_file(path, 20 * image_page); }},
        {"shrinks to data", [&] { std::filesystem::resize_file(path, 30 * image_page + 512); }},
    };
    for (const bool zstd : {false, true}) {
        CAPTURE(zstd);
        for (const auto& [name, change] : changes) {
            CAPTURE(name);
            REQUIRE(save(*volume, path, zstd) == "");
            const auto target = image_volume(device);
            bool changed = false;
            const auto why = restore_image(path, *target, {}, {}, [&](std::uint64_t) {
                if (!std::exchange(changed, true)) change();
            });
            CHECK(why == path +
                             ": another program wrote to it meanwhile; restore it again when it "
                             "is complete");
        }
    }
}

TEST_CASE("image: a restore and a save end in the middle of a run when they are stopped") {
    const gpunbd::test::TemporaryFolder folder;
    MemoryDevice device(0, {});
    const auto volume = image_volume(device);
    for (std::uint64_t page = 0; page != image_pages; ++page) write_page(*volume, page, 7);
    for (const bool zstd : {false, true}) {
        CAPTURE(zstd);
        const std::string path = folder.path("image");
        REQUIRE(save(*volume, path, zstd) == "");
        const auto target = image_volume(device);
        std::stop_source stop;
        device.allocates = [&] { stop.request_stop(); };  // for the first page of the run
        CHECK(restore_image(path, *target, {}, stop.get_token(), [](std::uint64_t) {}) ==
              "cancelled");
        device.allocates = {};
    }
    struct Stopping final : VolumeSink {
        std::optional<std::string> hole(std::uint64_t) override { return {}; }
        std::optional<std::string> run(std::uint64_t) override { return {}; }
        std::optional<std::string> data(const std::byte*, std::uint64_t) override {
            stop.request_stop();
            ++pieces;
            return {};
        }
        std::stop_source stop;
        int pieces = 0;
    } sink;
    VolumeReader reader(*volume, {});
    CHECK(reader.read(volume->size(), sink.stop.get_token(), sink, [](std::uint64_t) {}) ==
          "cancelled");
    CHECK(sink.pieces == 1);
}

// Pieces of any length and alignment, written back and read past the page cache where possible.
TEST_CASE("image: a file has what was appended") {
    const gpunbd::test::TemporaryFolder folder;
    for (const std::string& where : {folder.path(), std::string("/dev/shm")}) {
        CAPTURE(where);
        const std::string path = where + "/gpunbd-image-test";
        std::string expected;
        {
            Random random(1);
            std::string memory(6 << 20, '\0');
            for (char& each : memory) each = static_cast<char>(random.below(256));
            const std::size_t aligned = -reinterpret_cast<std::uintptr_t>(memory.data()) & 4095;
            ReplacedFile file(path);
            REQUIRE_FALSE(file.create());
            for (int i = 0; i != 60; ++i) {
                const std::size_t at = aligned + random.below(256) * 4096 +
                                       (random.one_in(2) ? 0 : random.below(4096));
                std::size_t length = 1 + random.below(random.one_in(2) ? 5 << 18 : 100);
                if (random.one_in(2)) length = (length + 4095) & ~std::size_t{4095};
                if (random.one_in(5)) {
                    REQUIRE_FALSE(file.skip(length));
                    expected.append(length, '\0');
                } else {
                    REQUIRE_FALSE(file.append(memory.data() + at, length));
                    expected.append(memory, at, length);
                }
            }
            REQUIRE_FALSE(file.publish());
        }
        ImageFile image(path);
        REQUIRE_FALSE(image.open());
        REQUIRE(image.size() == expected.size());
        std::vector<std::byte> all(expected.size() + 4096);
        std::byte* const begin =
            all.data() + (-reinterpret_cast<std::uintptr_t>(all.data()) & 4095);
        CHECK_FALSE(image.read(0, {begin, expected.size()}));
        CHECK(std::memcmp(begin, expected.data(), expected.size()) == 0);
        CHECK(image.read(4096, {begin, expected.size()}) ==
              image.problem("it is damaged: it is too short"));
        std::filesystem::remove(path);
    }
}

TEST_CASE("image: records") {
    const ImageRecord record{
        .kind = ImageRecord::Kind::hole, .length = 0x123456789abc, .skip = 0x1020304};
    auto bytes = record.encode();
    CHECK(ImageRecord::decode(bytes) == record);
    CHECK(bytes[0] == std::byte{0x5c});
    CHECK(bytes[3] == std::byte{0x18});
    bytes[16] = std::byte{9};
    CHECK_FALSE(ImageRecord::decode(bytes).has_value());
}

}  // namespace
}  // namespace gpunbd::storage::test
