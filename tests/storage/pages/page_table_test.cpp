#include "storage/pages/page_table.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/crc.hpp>

#include "storage/base/memory_file.hpp"
#include "tests/storage/random.hpp"
#include "tests/storage/sizes.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

constexpr std::uint64_t table_page = 64 * kib;
constexpr std::size_t head = 4096;  // bytes, for the shape below

TableShape two_devices() {
    return {.name = "data",
            .wanted = "size: 37",
            .instance = new_instance(),
            .made = 1700000000,
            .size = 37 * table_page - 5,
            .page_size = table_page,
            .provision = Provision::thin,
            .devices = {{.identity = "memory:0", .pages = 20, .slab_pages = 16, .slabs = 2},
                        {.identity = "memory:1", .pages = 17, .slab_pages = 32, .slabs = 1}}};
}

// Offsets in the format, in bytes.
constexpr std::size_t magic_at = 0;
constexpr std::size_t version_at = 8;
constexpr std::size_t checksum_at = 12;
constexpr std::size_t bytes_at = 16;
constexpr std::size_t words_at = 24;
constexpr std::size_t size_at = 32;
constexpr std::size_t page_size_at = 40;
constexpr std::size_t stripe_size_at = 48;
constexpr std::size_t provision_at = 80;
constexpr std::size_t devices_at = 84;
constexpr std::size_t name_at = 88;
constexpr std::size_t wanted_at = 92;
constexpr std::size_t device_at = 96;  // the record of the first device
constexpr std::size_t device_bytes = 80;
constexpr std::size_t pages_at = device_at;
constexpr std::size_t slab_pages_at = device_at + 8;
constexpr std::size_t slabs_at = device_at + 12;

constexpr const char* contradiction = "its header is inconsistent";
constexpr const char* wrong_checksum = "its checksum is wrong";

// A table in a file that a test can corrupt.
class SpoiledTable {
 public:
    explicit SpoiledTable(const TableShape& shape) {
        const PageTable table(shape, true);
        struct stat facts {};
        REQUIRE(::fstat(table.descriptor().get(), &facts) == 0);
        bytes_ = static_cast<std::size_t>(facts.st_size);
        descriptor_ = ::dup(table.descriptor().get());
        void* const mapped =
            ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
        REQUIRE(mapped != MAP_FAILED);
        base_ = static_cast<std::byte*>(mapped);
    }
    ~SpoiledTable() {
        ::munmap(base_, bytes_);
        ::close(descriptor_);
    }
    SpoiledTable(const SpoiledTable&) = delete;
    SpoiledTable& operator=(const SpoiledTable&) = delete;

    std::byte* at(std::size_t offset) const { return base_ + offset; }
    std::size_t bytes() const { return bytes_; }
    int descriptor() const { return descriptor_; }
    template <class Word>
    void set(std::size_t offset, Word value) const {
        std::memcpy(at(offset), &value, sizeof value);
    }
    template <class Word>
    Word get(std::size_t offset) const {
        Word value{};
        std::memcpy(&value, at(offset), sizeof value);
        return value;
    }
    // Over the length of the head, if it is near the right one. Otherwise no checksum is read.
    void correct_checksum() const {
        const auto end = get<std::uint64_t>(words_at);
        set(checksum_at, std::uint32_t{0});
        boost::crc_32_type crc;
        crc.process_bytes(base_, std::min<std::uint64_t>(end, 4 * head));
        set(checksum_at, crc.checksum());
    }
    std::variant<PageTable, std::string> open() const {
        return PageTable::open(OwnedFd::copy_of(descriptor_));
    }
    // Returns the reason for the refusal; empty: the table is valid.
    std::string refusal() const { return failure_of(open()); }

 private:
    std::byte* base_ = nullptr;
    std::size_t bytes_ = 0;
    int descriptor_ = -1;
};

std::uint64_t word_for(std::uint64_t number) {
    const std::uint64_t hash = number * 0x9e3779b97f4a7c15;
    return PageEntry::mapped(static_cast<std::uint32_t>(hash >> 48), static_cast<PageIndex>(hash))
        .word();
}

void fill_in(const PageTable& table) {
    const TableShape& shape = table.shape();
    for (std::uint64_t page = 0; page != shape.pages(); ++page) {
        table.slot(page).become(PageEntry(word_for(page)));
    }
    for (std::uint32_t device = 0; device != shape.devices.size(); ++device) {
        const SlabDirectory slabs = table.slabs(device);
        for (std::uint32_t i = 0; i != slabs.slabs(); ++i) {
            slabs.store(i, {.pages = 100 * device + i + 1, .kind = 7});
        }
    }
}

bool is_filled_in(const PageTable& table) {
    const TableShape& shape = table.shape();
    bool all = true;
    for (std::uint64_t page = 0; page != shape.pages(); ++page) {
        all = all && table.slot(page).load().word() == word_for(page);
    }
    for (std::uint32_t device = 0; device != shape.devices.size(); ++device) {
        const SlabDirectory slabs = table.slabs(device);
        all = all && slabs.slabs() == shape.devices[device].slabs;
        for (std::uint32_t i = 0; i != slabs.slabs(); ++i) {
            const SlabEntry entry = slabs.load(i);
            all = all && entry.pages == 100 * device + i + 1 && entry.kind == 7;
        }
    }
    return all;
}

TEST_CASE("page table: a new table has only holes and no slabs, kept or not") {
    for (const bool kept : {false, true}) {
        const PageTable table(two_devices(), kept);
        CHECK(static_cast<bool>(table.descriptor()) == kept);
        for (std::uint64_t page = 0; page != 37; ++page) {
            CHECK(table.slot(page).load() == PageEntry());
        }
        CHECK(table.slabs(0).slabs() == 2);
        CHECK(table.slabs(1).slabs() == 1);
        CHECK(table.slabs(0).load(1).pages == 0);
    }
}

TEST_CASE("page table: the creator and a process that opens it share its contents") {
    TableShape shape = two_devices();
    SUBCASE("default shape") {}
    SUBCASE("striped, full, without a name") {
        shape.name.clear();
        shape.stripe_size = 4 * table_page;
        shape.provision = Provision::full;
    }
    SUBCASE("texts that need another page of memory") {
        shape.name = std::string(5000, 'n');
        shape.wanted = std::string(60000, 'w');
    }
    const PageTable made(shape, true);
    fill_in(made);
    const PageTable table = checked(PageTable::open(OwnedFd::copy_of(made.descriptor())));
    CHECK(table.shape() == shape);
    CHECK(is_filled_in(table));
    table.slot(36).become(PageEntry::mapped(1, 5));
    table.slabs(1).store(0, {.pages = 3, .kind = 2});
    CHECK(made.slot(36).load() == PageEntry::mapped(1, 5));
    CHECK(made.slabs(1).load(0).pages == 3);
}

TEST_CASE("page table: it grows and shrinks for the process that opens it too") {
    const TableShape shape = two_devices();
    const SpoiledTable file(shape);
    auto made = checked(file.open());
    fill_in(made);
    REQUIRE(made.make_room(10000 * table_page));
    made.slot(9999).become(PageEntry(word_for(9999)));
    made.set_configured_size(99);
    made.set_size(10000 * table_page - 7);
    {
        const PageTable table = checked(file.open());
        CHECK(table.shape() == shape);
        CHECK(table.size() == 10000 * table_page - 7);
        CHECK(table.pages() == 10000);
        CHECK(table.configured_size() == 99);
        CHECK(is_filled_in(table));
        CHECK(table.slot(9999).load().word() == word_for(9999));
    }
    made.set_size(3 * table_page);
    CHECK(checked(file.open()).pages() == 3);
    CHECK_FALSE(made.make_room(std::uint64_t{1} << 40));
    // Incomplete contents stay so, whatever their size, until one store completes them.
    REQUIRE(made.set_complete(false));
    made.set_size(4 * table_page);
    CHECK(made.pages() == 4);
    CHECK_FALSE(checked(file.open()).complete());
    REQUIRE(made.set_complete(true));
    CHECK(checked(file.open()).complete());
    CHECK(checked(file.open()).pages() == 4);
    const PageTable new_one(shape, true, 0, false);
    CHECK_FALSE(checked(PageTable::open(OwnedFd::copy_of(new_one.descriptor()))).complete());
    for (const std::uint64_t wrong :
         {std::uint64_t{0}, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
        file.set(head, wrong);
        CHECK(file.refusal() == contradiction);
    }
}

// The place of the names in the format.
constexpr std::size_t room_for_names = 5 * 4096;

TEST_CASE("page table: its name changes by one store, also for the process that opens it") {
    const SpoiledTable file(two_devices());
    auto made = checked(file.open());
    const auto found = [&] { return checked(file.open()).name(); };
    CHECK(made.can_rename());
    CHECK(found() == "data");
    const std::string longest(PageTable::max_name, 'n');
    for (const std::string& name : {std::string("other"), longest, std::string("data")}) {
        const std::string earlier = made.name();
        REQUIRE(made.prepare_name(name));
        CHECK(found() == earlier);
        REQUIRE(made.set_name(name));
        CHECK(found() == name);
        CHECK(made.name() == name);
    }
    CHECK(made.shape().name == "data");
    CHECK_FALSE(made.set_name(longest + "n"));
    // A process was killed before the store.
    checked(file.open()).prepare_name("next");
    CHECK(found() == "data");
    // Entries never reach the names.
    while (made.make_room((made.slots() + 1) * table_page)) {
    }
    made.slot(made.slots() - 1).become(PageEntry(~std::uint64_t{0}));
    CHECK(found() == "data");
    const std::size_t names = file.bytes() - room_for_names;
    file.set(names + 4096, ~std::uint64_t{0});  // the length of the first one
    file.set(names, std::uint64_t{1});
    CHECK(file.refusal() == contradiction);
    file.set(names, std::uint64_t{3});
    CHECK(file.refusal() == contradiction);
}

TEST_CASE("page table: one of the format without names keeps its name") {
    const SpoiledTable file(two_devices());
    file.set(file.bytes() - room_for_names, ~std::uint64_t{0});
    file.set(version_at, std::uint32_t{2});
    file.correct_checksum();
    const PageTable table = checked(file.open());
    CHECK(table.name() == "data");
    CHECK_FALSE(table.can_rename());
    CHECK(table.can_resize());
}

TEST_CASE("page table: one of the format without sizes is taken over, and cannot be resized") {
    const TableShape shape = two_devices();
    const SpoiledTable made(shape);
    constexpr std::size_t bytes = 2 * head;
    made.set(version_at, std::uint32_t{1});
    made.set(bytes_at, std::uint64_t{bytes});
    made.correct_checksum();
    // The entries come first.
    for (std::uint64_t page = 0; page != 37; ++page) made.set(head + page * 8, word_for(page));
    std::size_t at = head + std::size_t{37} * 8;
    for (const std::uint32_t pages : {1U, 2U, 101U}) {
        made.set(at, SlabEntry{.pages = pages, .kind = 7}.word());
        at += 8;
    }
    OwnedFd file = make_memory_file(bytes);
    REQUIRE(::pwrite(file.get(), made.at(0), bytes, 0) == bytes);
    PageTable table = checked(PageTable::open(std::move(file)));
    CHECK(table.shape() == shape);
    CHECK(table.size() == shape.size);
    CHECK(is_filled_in(table));
    CHECK_FALSE(table.can_resize());
    CHECK(table.complete());
    CHECK_FALSE(table.set_complete(false));
}

TEST_CASE("page table: each byte of its header is validated") {
    const SpoiledTable table(two_devices());
    REQUIRE(table.refusal().empty());
    for (std::size_t at = 0; at != head; ++at) {
        for (const unsigned bit : {0U, 7U}) {
            *table.at(at) ^= std::byte{1} << bit;
            const std::string why = table.refusal();
            *table.at(at) ^= std::byte{1} << bit;
            CAPTURE(at);
            CAPTURE(why);
            if (at < version_at) {
                REQUIRE(why == "it is not a page table of gpunbd");
            } else if (at < checksum_at) {
                // Earlier formats have a checksum as well.
                REQUIRE((why.substr(0, 14) == "its format is " || why == wrong_checksum));
            } else if (at >= bytes_at && at < words_at) {
                REQUIRE(contains(why, "bytes, and its header records"));
            } else {
                REQUIRE((why == wrong_checksum || why == contradiction));
            }
            if (at >= device_at) REQUIRE(why == wrong_checksum);
        }
    }
    CHECK(table.refusal().empty());
}

// The checksum is correct.
TEST_CASE("page table: a header of another format or kind, or a contradictory one, is refused") {
    constexpr auto huge = std::numeric_limits<std::uint64_t>::max();
    constexpr auto large = std::numeric_limits<std::uint32_t>::max();
    using Spoil = std::function<void(const SpoiledTable&)>;
    const auto word = [](std::size_t at, std::uint64_t value) -> Spoil {
        return [=](const SpoiledTable& table) { table.set(at, value); };
    };
    const auto half = [](std::size_t at, std::uint32_t value) -> Spoil {
        return [=](const SpoiledTable& table) { table.set(at, value); };
    };
    const auto both = [](Spoil one, Spoil other) -> Spoil {
        return [=](const SpoiledTable& table) { one(table), other(table); };
    };
    const std::pair<std::string, Spoil> rows[] = {
        {"no size", word(size_at, 0)},
        {"a page more", word(size_at, 38 * table_page)},
        {"a page less", word(size_at, 36 * table_page)},
        {"the largest size", word(size_at, huge)},
        {"its pages overflow",
         both(word(size_at, huge), word(page_size_at, std::uint64_t{1} << 63))},
        {"its pages overflow to the right number",
         both(word(size_at, huge - 1), word(page_size_at, std::uint64_t{1} << 62))},
        {"no page size", word(page_size_at, 0)},
        {"page size no power of two", word(page_size_at, table_page + 1)},
        {"half the page size", word(page_size_at, table_page / 2)},
        {"a stripe that is no pages", word(stripe_size_at, table_page + 1)},
        {"unknown provision", half(provision_at, 2)},
        {"no device", half(devices_at, 0)},
        {"one device less", half(devices_at, 1)},
        {"very many devices", half(devices_at, large)},
        {"as many devices as there may be", half(devices_at, 65536)},
        {"a name longer than all", half(name_at, 60000)},
        {"a name longer than there may be", half(name_at, large)},
        {"a text longer than all", half(wanted_at, 60000)},
        {"a text longer than there may be", half(wanted_at, large)},
        {"both texts overflow", both(half(name_at, large), half(wanted_at, large))},
        {"entries in the head", word(words_at, 96)},
        {"entries at no page of memory", word(words_at, head + 8)},
        {"entries a page later", word(words_at, 2 * head)},
        {"entries behind the end", word(words_at, 1 << 23)},
        {"entries at the end of all", word(words_at, huge - 7)},
        {"slabs of no page", half(slab_pages_at, 0)},
        {"slabs of no power of two", half(slab_pages_at, 15)},
        {"slabs that have too few pages", half(slab_pages_at, 8)},
        {"slabs that have far too many", half(slab_pages_at, std::uint32_t{1} << 31)},
        {"no slabs", half(slabs_at, 0)},
        {"very many slabs", half(slabs_at, large)},
        {"a slab more, where a page was", both(half(slabs_at, 3), word(size_at, 36 * table_page))},
        {"a slab more, and all still fits", half(slabs_at, 4)},
        {"more pages than the volume", word(pages_at, 21)},
        {"fewer pages than the volume", word(pages_at, 19)},
        {"as many pages as can be written down", word(pages_at, huge)},
    };
    for (const auto& [name, spoil] : rows) {
        CAPTURE(name);
        const SpoiledTable table(two_devices());
        spoil(table);
        table.correct_checksum();
        CHECK(table.refusal() == contradiction);
    }
    const SpoiledTable table(two_devices());
    table.set(version_at, std::uint32_t{6});
    table.correct_checksum();
    CHECK(table.refusal() == "its format is 6, and this gpunbd supports 5");
    for (const std::uint32_t version : {4U, 5U}) {  // of a cache or its clone, with one device
        table.set(version_at, version);
        table.correct_checksum();
        CHECK(table.refusal() == contradiction);
    }
    table.set(magic_at, std::uint64_t{0x1234});
    table.correct_checksum();
    CHECK(table.refusal() == "it is not a page table of gpunbd");
}

// The records would be longer than the file: neither they nor the checksum are read.
TEST_CASE("page table: a header whose records would exceed the file is refused") {
    const SpoiledTable table(two_devices());
    for (const std::uint32_t devices : {60000U, 65536U}) {
        const std::uint64_t needed =
            (96 + std::uint64_t{devices} * device_bytes + 4 + 8 + 4095) / 4096 * 4096;
        REQUIRE(needed > table.bytes());
        table.set(devices_at, devices);
        table.set(words_at, needed);
        table.correct_checksum();
        CHECK(table.refusal() == contradiction);
    }
}

TEST_CASE("page table: an identity without a terminator does not extend into the next record") {
    const SpoiledTable table(two_devices());
    std::memset(table.at(device_at + 16), 'x', 60);
    table.correct_checksum();
    const TableShape shape = checked(table.open()).shape();
    CHECK(shape.devices[0].identity == std::string(59, 'x'));
    CHECK(shape.devices[1].identity == "memory:1");
}

TEST_CASE("page table: a file of another kind is refused and closed") {
    const SpoiledTable table(two_devices());
    const auto file_of = [&](std::size_t bytes) {
        OwnedFd file = make_memory_file(bytes);
        REQUIRE(file);
        const std::size_t part = std::min(bytes, table.bytes());
        REQUIRE(::pwrite(file.get(), table.at(0), part, 0) == static_cast<ssize_t>(part));
        return file.release();
    };
    const auto unsealed = [&] {
        const int descriptor = ::memfd_create("unsealed", MFD_ALLOW_SEALING);
        REQUIRE(::ftruncate(descriptor, static_cast<off_t>(table.bytes())) == 0);
        REQUIRE(::pwrite(descriptor, table.at(0), table.bytes(), 0) > 0);
        return descriptor;
    };
    const std::size_t bytes = table.bytes();
    const struct {
        std::string name;
        std::function<int()> make;
        std::string why;
    } rows[] = {
        {"nothing", [] { return -1; }, "it is not a descriptor"},
        {"empty", [&] { return file_of(0); }, "it is too short"},
        {"half of a head", [&] { return file_of(2048); }, "it is too short"},
        {"a head alone", [&] { return file_of(head); },
         fmt::format("it has {} bytes, and its header records {}", head, bytes)},
        {"a byte short", [&] { return file_of(bytes - 1); },
         fmt::format("it has {} bytes, and its header records {}", bytes - 1, bytes)},
        {"a byte long", [&] { return file_of(bytes + 1); },
         fmt::format("it has {} bytes, and its header records {}", bytes + 1, bytes)},
        {"a page long", [&] { return file_of(bytes + 4096); },
         fmt::format("it has {} bytes, and its header records {}", bytes + 4096, bytes)},
        {"not sealed", unsealed, "its size is not sealed"},
    };
    for (const auto& row : rows) {
        CAPTURE(row.name);
        const int descriptor = row.make();
        CHECK(failure_of(PageTable::open(OwnedFd(descriptor))) == row.why);
        CHECK(::fcntl(descriptor, F_GETFD) == -1);
    }
    CHECK(table.refusal().empty());
}

std::uint64_t something(Random& random) {
    constexpr std::uint64_t values[] = {0,    1,    2,          3,          16,         37,
                                        4096, 8192, table_page, 1ULL << 31, 1ULL << 32, 1ULL << 40};
    switch (random.below(4)) {
        case 0:
            return values[random.below(std::size(values))];
        case 1:
            return (std::uint64_t{1} << random.below(64)) - random.below(2);
        case 2:
            return ~std::uint64_t{0} - random.below(5000);
        default:
            return std::uint64_t{random.below(0xffffffff)} << random.below(40);
    }
}

// A table that can be opened lies within its file.
TEST_CASE("page table: random headers with valid checksums cause no access outside the file") {
    constexpr std::size_t words[] = {
        size_at, page_size_at, stripe_size_at, pages_at, pages_at + device_bytes, words_at};
    constexpr std::size_t halves[] = {provision_at,
                                      devices_at,
                                      name_at,
                                      wanted_at,
                                      slab_pages_at,
                                      slabs_at,
                                      slab_pages_at + device_bytes,
                                      slabs_at + device_bytes};
    const SpoiledTable table(two_devices());
    const std::vector<std::byte> whole(table.at(0), table.at(head));
    Random random(1);
    std::uint32_t taken = 0;
    for (int round = 0; round != 10000; ++round) {
        for (std::uint32_t changes = random.between(1, 4); changes != 0; --changes) {
            if (random.one_in(2)) {
                table.set(words[random.below(std::size(words))], something(random));
            } else if (random.one_in(8)) {
                *table.at(16 + random.below(device_at + 2 * device_bytes)) = std::byte{0xff};
            } else {
                table.set(halves[random.below(std::size(halves))],
                          static_cast<std::uint32_t>(something(random)));
            }
        }
        table.correct_checksum();
        auto opened = table.open();
        if (const auto* const open = std::get_if<PageTable>(&opened)) {
            ++taken;
            const TableShape& shape = open->shape();
            REQUIRE(shape.pages() <= table.bytes() / 8);
            REQUIRE(shape.pages() * shape.page_size >= shape.size);
            std::uint64_t last = open->slot(shape.pages() - 1).load().word();
            std::uint64_t pages = 0;
            for (std::uint32_t i = 0; i != shape.devices.size(); ++i) {
                const SlabDirectory slabs = open->slabs(i);
                if (slabs.slabs() != 0) last |= slabs.load(slabs.slabs() - 1).word();
                pages += shape.devices[i].pages;
                REQUIRE(shape.devices[i].pages <= shape.pages());
                REQUIRE(slabs.slabs() * shape.devices[i].slab_pages < 2 * shape.pages());
            }
            REQUIRE(last == 0);
            REQUIRE(pages == shape.pages());
        }
        std::memcpy(table.at(0), whole.data(), whole.size());
    }
    // Some changes have no effect, or are valid.
    CHECK(taken != 0);
    CHECK(taken < 5000);
    CHECK(table.refusal().empty());
}

}  // namespace
}  // namespace gpunbd::storage::test
