// A directory or a table that does not belong to the others is refused, and nothing changes.
#include "storage/pages/shared_directory.hpp"

#include <fcntl.h>

#include "storage/pages/volume.hpp"
#include "tests/storage/memory_device.hpp"
#include "tests/storage/pages/crash_image.hpp"
#include "tests/storage/sizes.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

std::shared_ptr<const SharedDirectory> open_directory(const OwnedFd& file) {
    return std::make_shared<SharedDirectory>(
        checked(SharedDirectory::open(OwnedFd::copy_of(file.get()))));
}

TEST_CASE("shared directory: another process finds its slabs") {
    const SharedDirectory made(2);
    CHECK_FALSE(made.in_use(1));
    made.slabs(1).store(SharedDirectory::max_slabs - 1, {.pages = 3, .kind = 1, .generation = 7});
    made.set_in_use(1);
    const auto opened = open_directory(made.descriptor());
    CHECK(opened->devices() == 2);
    CHECK_FALSE(opened->in_use(0));
    CHECK(opened->in_use(1));
    CHECK(opened->slabs(1).load(SharedDirectory::max_slabs - 1) ==
          SlabEntry{.pages = 3, .kind = 1, .generation = 7});
    CHECK(opened->slabs(0).load(SharedDirectory::max_slabs - 1) == SlabEntry{});
}

const TableShape::DeviceShare added_share{
    .identity = "memory:7", .pages = 40, .slab_pages = 16, .slabs = 4, .home = 1};

TEST_CASE("shared directory: another process finds the devices that were added") {
    const SharedDirectory made(2);
    CHECK(made.added().empty());
    for (std::uint32_t device = 2; device != 2 + SharedDirectory::max_added; ++device) {
        REQUIRE(made.make_room());
        made.set_in_use(device);
        made.slabs(device).store(SharedDirectory::max_slabs - 1, {.pages = device});
        made.add(added_share);
    }
    CHECK_FALSE(made.make_room());
    const auto opened = open_directory(made.descriptor());
    CHECK(opened->devices() == 2);
    CHECK(opened->added() ==
          std::vector<TableShape::DeviceShare>(SharedDirectory::max_added, added_share));
    CHECK(opened->in_use(17));
    CHECK(opened->slabs(17).load(SharedDirectory::max_slabs - 1).pages == 17);
}

TEST_CASE("shared directory: one without room is used, and no device is added to it") {
    std::vector<std::byte> bytes = bytes_in(SharedDirectory(2).descriptor());
    bytes[8] = std::byte{1};
    bytes.resize(532480);
    const OwnedFd file = file_with(bytes);
    const auto opened = open_directory(file);
    opened->slabs(1).store(SharedDirectory::max_slabs - 1, {.pages = 3});
    CHECK(opened->added().empty());
    CHECK_FALSE(opened->make_room());
}

TEST_CASE("shared directory: a device with more pages than its slabs hold is refused") {
    const SharedDirectory made(2);
    REQUIRE(made.make_room());
    TableShape::DeviceShare share = added_share;
    share.pages = share.slab_pages * share.slabs + 1;
    made.add(share);
    CHECK(failure_of(SharedDirectory::open(OwnedFd::copy_of(made.descriptor()))) ==
          "the records of its devices are inconsistent");
}

TEST_CASE("shared directory: files of another kind are refused") {
    const SharedDirectory made(2);
    std::vector<std::byte> bytes = bytes_in(made.descriptor());
    const struct {
        std::string name;
        std::size_t at;
        std::byte value;
        std::string why;
    } rows[] = {
        {"another magic", 0, std::byte{0}, "it is not a slab directory of gpunbd"},
        {"another version", 8, std::byte{3},
         "its format is 3 for 32768 slabs, and this gpunbd supports 2 for 32768"},
        {"other slabs", 16, std::byte{1},
         "its format is 2 for 32769 slabs, and this gpunbd supports 2 for 32768"},
        {"other devices", 12, std::byte{3}, "it has 4726784 bytes, not 4988928"},
        {"too many devices", 14, std::byte{1},
         "it has 65538 devices, and at most 65520 are possible"},
        {"too many records", 24, std::byte{17}, "the records of its devices are inconsistent"},
        {"a record that is empty", 24, std::byte{1}, "the records of its devices are inconsistent"},
    };
    for (const auto& row : rows) {
        CAPTURE(row.name);
        std::vector<std::byte> changed = bytes;
        changed[row.at] = row.value;
        CHECK(failure_of(SharedDirectory::open(file_with(changed))) == row.why);
    }
    CHECK(failure_of(SharedDirectory::open(OwnedFd(::open("/dev/null", O_RDWR | O_CLOEXEC)))) ==
          "it is not a slab directory of gpunbd");
}

// A volume of four pages and its clone, after the end of their process.
struct LeftClone {
    std::shared_ptr<FakeParts> source = std::make_shared<FakeParts>();
    std::shared_ptr<FakeParts> clone = std::make_shared<FakeParts>();

    explicit LeftClone(std::uint64_t pages = 4) {
        MemoryDevice device(0, {});
        const auto volume =
            checked(Volume::create({.size = pages * 4 * kib, .page_size = 4 * kib}, {&device}, {},
                                   {.name = "source", .kept_parts = source}));
        volume->quiesce();
        checked(volume->clone(KeepOptions{.name = "clone", .kept_parts = clone}));
    }
    void add(const std::shared_ptr<FakeParts>& keeper, KeptVolumes& contents) const {
        contents.members.push_back(
            {checked(PageTable::open(OwnedFd::copy_of(keeper->table.get()))), keeper});
    }
};

TEST_CASE("take over: parts that do not belong together are refused") {
    const LeftClone left;
    const LeftClone larger(5);
    KeptVolumes contents;
    std::string why;
    SUBCASE("no directory") {
        left.add(left.source, contents);
        left.add(left.clone, contents);
        why = "its slab directory is missing";
    }
    SUBCASE("no directory, and the source is gone") {
        left.add(left.clone, contents);
        why = "its slab directory is missing";
    }
    SUBCASE("a directory that is not in use") {
        left.add(left.clone, contents);
        contents.directory = std::make_shared<SharedDirectory>(1U);
        why = "its slab directory is missing";
    }
    SUBCASE("a directory for other devices") {
        left.add(left.clone, contents);
        contents.directory = std::make_shared<SharedDirectory>(2U);
        why = "its slab directory is for 2 devices, and it has 1";
    }
    SUBCASE("more slabs than a directory has room for") {
        TableShape shape{.name = "clone",
                         .wanted = {},
                         .size = (SharedDirectory::max_slabs + 1) * 4 * kib,
                         .page_size = 4 * kib,
                         .devices = {{.identity = "memory:0",
                                      .pages = SharedDirectory::max_slabs + 1,
                                      .slab_pages = 1}}};
        contents.members.push_back({PageTable(std::move(shape), true), left.clone});
        contents.directory = std::make_shared<SharedDirectory>(1U);
        contents.directory->set_in_use(0);
        why = "its slab directory has no room for its slabs";
    }
    SUBCASE("two sources") {
        left.add(left.source, contents);
        left.add(left.source, contents);
        contents.directory = open_directory(left.source->directory);
        why = "it has several slab directories";
    }
    SUBCASE("another size") {
        left.add(left.source, contents);
        larger.add(larger.clone, contents);
        contents.directory = open_directory(left.source->directory);
        why = "it differs in shape from an export that it shares pages with";
    }
    SUBCASE("a page in two tables, with different numbers") {
        left.add(left.source, contents);
        left.add(left.clone, contents);
        contents.directory = open_directory(left.source->directory);
        contents.members[0].table.slot(0).become(PageEntry::shared(0, 1));
        contents.members[1].table.slot(2).become(PageEntry::shared(0, 1));
        why = "page 2 has the same location as another page";
    }
    MemoryDevice device(0, {});
    CHECK(failure_of(Volume::take_over(std::move(contents), {&device})) == why);
}

}  // namespace
}  // namespace gpunbd::storage::test
