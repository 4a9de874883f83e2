// Requests to volumes that share pages, compared with a model of each.
#include "tests/storage/family.hpp"
#include "tests/storage/migration/moving_rig.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

constexpr std::uint64_t page_size = 128 * kib;

struct Setting {
    const char* name;
    const char* devices;
    std::uint64_t pages;
    std::uint64_t stripe_size = 0;
    Provision provision = Provision::thin;
    bool discards = true;
    std::uint64_t available = std::uint64_t{1} << 40;  // on each device when the volume is made
};

constexpr Setting settings[] = {
    {"in place", "h", 8},
    {"staged", "s", 8},
    {"cleared by hand", "h", 8, 0, Provision::thin, false},
    {"fully provisioned", "h", 8, 0, Provision::full, false},
    {"a BAR", "b", 4},
    {"a file", "f", 4},
    {"Vulkan in place", "v", 8},
    {"Vulkan through staging memory", "w", 8},
    {"linear, staged and in place", "sh", 8, 0, Provision::thin, true, 4 * page_size},
    {"striped, staged and in place", "shs", 12, page_size},
};

RigOptions options_of(const Setting& setting) {
    return {.devices = setting.devices,
            .size = setting.pages * page_size - 5000,
            .page_size = page_size,
            .stripe_size = setting.stripe_size,
            .provision = setting.provision,
            .capacity = setting.available,
            .discards = setting.discards};
}

// Volumes that share pages, and requests to any of them, one after another.
template <class OwnRig>
struct ClientOf : Requests {
    OwnRig own;
    Family family{own};

    explicit ClientOf(const RigOptions& options) : Requests{own, Random(1)}, own(options) {}

    // A request to a random volume. Ranges begin or end with a page now and then.
    Status request() {
        if (family.others() != 0)
            family.use(random.below(static_cast<std::uint32_t>(family.others())));
        const auto size = static_cast<std::uint32_t>(rig.options.size);
        std::uint32_t ends[] = {random.below(size), random.below(size)};
        for (std::uint32_t& end : ends) {
            if (random.one_in(3)) end -= end % static_cast<std::uint32_t>(page_size);
        }
        const std::uint32_t begin = std::min(ends[0], ends[1]);
        const std::uint32_t length = std::max({ends[0], ends[1], begin + 1}) - begin;
        switch (random.below(5)) {
            case 0:
                return zero(begin, length, random.one_in(2));
            default:
                return write(begin, std::min<std::uint32_t>(length, 2 * page_size));
        }
    }
    void check_contents() {
        family.for_each([&] { REQUIRE(read_all() == Status::ok); });
    }
    // The page tables and the counts of the pools say the same.
    void check_counts() {
        std::set<std::uint64_t> pages;
        std::uint64_t mapped = 0;
        family.for_each([&] {
            const Volume::Contents contents = rig.volume->contents();
            CHECK(rig.volume->mapped_bytes() == contents.own + contents.shared);
            CHECK(rig.volume->retired_bytes() == 0);
            for (std::uint64_t page = 0; page != rig.pages(); ++page) {
                const PageEntry entry = rig.volume->slot(page).load();
                if (entry.is_mapped())
                    pages.insert(PageEntry::mapped(entry.device(), entry.page()).word());
            }
        });
        for (std::uint32_t i = 0; i != rig.volume->devices().size(); ++i) {
            mapped += rig.volume->pool(i).memory().pages().mapped_pages() * page_size;
        }
        CHECK(mapped == pages.size() * page_size);
    }
};

using Client = ClientOf<Rig>;

TEST_CASE("sharing: requests to volumes and their clones, in any order") {
    for (const Setting& setting : settings) {
        if (!has_devices(setting.devices)) continue;
        CAPTURE(setting.name);
        Client client(options_of(setting));
        for (MemoryDevice* const memory : client.rig.memories) {
            memory->set_capacity(std::uint64_t{1} << 40);
        }
        for (int round = 0; round != 150; ++round) {
            CAPTURE(round);
            REQUIRE(client.request() == Status::ok);
            if (client.random.one_in(8) && client.family.others() < 5) {
                REQUIRE(client.family.clone().empty());
            }
            if (client.random.one_in(10) && client.family.others() > 1) {
                client.family.remove(
                    client.random.below(static_cast<std::uint32_t>(client.family.others())));
            }
            if (client.random.one_in(6)) client.check_contents();
        }
        client.check_contents();
        client.check_counts();
        while (client.family.others() != 0) client.family.remove(0);
        client.check_contents();
        if (setting.provision == Provision::thin && !client.rig.memories.empty()) {
            client.rig.check_pages();
        }
    }
}

TEST_CASE("sharing: requests while pages leave the device and return") {
    struct Row {
        const char* devices;
        const char* spills;
    };
    for (const auto& [devices, spills] :
         {Row{"h", "h"}, Row{"s", "f"}, Row{"v", "h"}, Row{"w", "h"}, Row{"h", "w"}}) {
        if (!has_devices(std::string(devices) + spills)) continue;
        CAPTURE(devices);
        CAPTURE(spills);
        ClientOf<MovingRig> client({.devices = devices,
                                    .spills = spills,
                                    .size = 16 * page_size - 5000,
                                    .page_size = page_size});
        MovingRig& rig = client.own;
        const auto migrate_all = [&] {
            Migrator::Volumes volumes{{rig.volume.get(), [](Volume*) {}}};
            for (std::size_t i = 0; i != client.family.others(); ++i) {
                volumes.push_back(client.family.unowned(i));
            }
            rig.migrate(std::move(volumes));
        };
        for (int round = 0; round != 40; ++round) {
            CAPTURE(round);
            if (client.random.one_in(6) && client.family.others() < 4) {
                REQUIRE(client.family.clone().empty());
            }
            migrate_all();
            std::promise<Migration> moved;
            const auto done = [&](const Migration& out) { moved.set_value(out); };
            if (round % 2 == 0) {
                rig.migrator.reclaim(client.random.one_in(2) ? MovingRig::all : 4 * page_size,
                                     done);
            } else {
                rig.migrator.release(MovingRig::all, done);
            }
            for (std::uint32_t requests = client.random.below(6); requests != 0; --requests) {
                REQUIRE(client.request() == Status::ok);
            }
            CHECK(moved.get_future().get().error.empty());
            if (client.random.one_in(8) && client.family.others() > 1) {
                rig.migrate({});
                client.family.remove(0);
            }
            if (client.random.one_in(6)) client.check_contents();
        }
        migrate_all();
        CHECK(rig.release().error.empty());
        CHECK(rig.bytes_on(1) == 0);
        client.check_contents();
        client.check_counts();
        rig.migrate({});
    }
}

// The volume of a READ loses its page, and its clone, which has the page alone then, writes there.
// `cloned_first`: otherwise the clone is made while the READ is in progress.
TEST_CASE("sharing: a read does not contain what another volume writes meanwhile") {
    for (const char* const devices : {"h", "s"}) {
        for (const bool cloned_first : {true, false}) {
            CAPTURE(devices);
            CAPTURE(cloned_first);
            Client client({.devices = devices, .size = page_size, .page_size = page_size});
            Rig& rig = client.rig;
            REQUIRE(client.write(0, page_size) == Status::ok);
            const std::vector<std::byte> before = rig.model;
            if (cloned_first) REQUIRE(client.family.clone().empty());

            SilentOwner owner;
            ReadTransfer read;
            read.begin({*rig.volume, *rig.channels, client.account}, owner, {0, page_size});
            std::vector<ReadTransfer::Piece> pieces(1);
            if (!read.next(pieces.front())) pieces.clear();
            CHECK(pieces.empty() == (cloned_first || devices == std::string_view("s")));
            if (!cloned_first) REQUIRE(client.family.clone().empty());
            rig.volume->unmap(0);
            client.family.use(0);
            const std::unique_ptr<Channels> others = rig.open_channels();
            ClientAccount other;
            WriteJob write(rig, *others, other, 0, page_size, 77);
            REQUIRE(run(*others, {&write}, client.random));
            client.family.use(0);

            const bool was_lent = !pieces.empty();
            while (!read.all_taken()) {
                rig.channels->poll();
                for (ReadTransfer::Piece piece; read.next(piece);) pieces.push_back(piece);
            }
            for (const ReadTransfer::Piece& piece : pieces) {
                CHECK((piece.data == nullptr) != was_lent);
                CHECK((piece.data == nullptr || std::equal(piece.data, piece.data + piece.length,
                                                           before.data() + piece.offset)));
                read.give_back();
            }
            rig.check_settled();
        }
    }
}

TEST_CASE("sharing: pages of a device that sends in place are read with long chunks") {
    RigOptions options;
    options.size = options.page_size = 16 * mib;
    options.channels = {.chunk_size = 8 * mib, .slots = 2, .pinned = 16 * mib};
    Client client(options);
    REQUIRE(client.write(0, 16 * mib) == Status::ok);
    REQUIRE(client.family.clone().empty());
    client.check_contents();
}

// A first write of part of a shared page copies it, and a later one does not; nor does a write of
// zeroes to a whole page, or a write to a page that no other volume has any more.
TEST_CASE("sharing: pages are copied once") {
    Client client({.size = 4 * page_size});
    MemoryDevice& device = *client.rig.memories[0];
    REQUIRE(client.write(0, 4 * page_size) == Status::ok);
    REQUIRE(client.family.clone().empty());
    REQUIRE(client.write(100, 1000) == Status::ok);
    CHECK(device.copies == 1);
    REQUIRE(client.write(50000, 1000) == Status::ok);
    CHECK(device.copies == 1);
    REQUIRE(client.zero(page_size, page_size, true) == Status::ok);
    REQUIRE(client.zero(2 * page_size, page_size, false) == Status::ok);
    CHECK(device.copies == 1);
    CHECK(client.rig.volume->contents().own == 2 * page_size);
    CHECK(client.rig.volume->contents().shared == page_size);
    client.check_contents();
    client.family.remove(0);
    REQUIRE(client.write(3 * page_size + 100, 1000) == Status::ok);
    CHECK(device.copies == 1);
    client.check_contents();
}

// A happy script is repeated with each copy failing, or with each allocation.
TEST_CASE("sharing: a failure at any step leaves all volumes intact") {
    for (const bool no_space : {false, true}) {
        CAPTURE(no_space);
        bool any = true;
        for (std::int64_t step = 0; any; ++step) {
            CAPTURE(step);
            Client client({.devices = "s", .size = 4 * page_size, .page_size = page_size});
            REQUIRE(client.write(1000, 2 * page_size) == Status::ok);
            auto& countdown = no_space ? client.rig.script.allocations_until_failure
                                       : client.rig.script.copies_until_failure;
            countdown = step;
            any = false;
            const auto count = [&](Status status) {
                REQUIRE((status == Status::ok ||
                         status == (no_space ? Status::no_space : Status::io_error)));
                any = any || status != Status::ok;
            };
            REQUIRE(client.family.clone().empty());
            count(client.write(5000, 6000));
            client.family.use(0);
            count(client.write(page_size - 100, 200));
            count(client.zero(2 * page_size + 5, 100, false));
            REQUIRE(client.family.clone().empty());
            count(client.write(0, 3 * page_size));
            client.family.use(1);
            count(client.zero(100, page_size, true));
            countdown = FaultScript::never;
            client.check_contents();
            client.check_counts();
            // What failed can be repeated.
            client.family.for_each([&] { REQUIRE(client.write(0, 3 * page_size) == Status::ok); });
            client.check_contents();
            while (client.family.others() != 0) client.family.remove(0);
            client.rig.check_pages();
        }
    }
}

TEST_CASE(
    "sharing: a write without memory for a copy is refused, and both volumes keep their contents") {
    Client client({.size = 4 * page_size, .page_size = page_size, .capacity = 4 * page_size});
    REQUIRE(client.write(0, 4 * page_size) == Status::ok);
    REQUIRE(client.family.clone().empty());
    CHECK(client.write(1000, 1000) == Status::no_space);
    client.rig.set_known(1000, 1000, true);  // it has not changed
    client.check_contents();
    REQUIRE(client.zero(page_size, page_size, false) == Status::ok);  // frees nothing
    CHECK(client.write(1000, 1000) == Status::no_space);
    client.rig.set_known(1000, 1000, true);
    client.family.remove(0);
    REQUIRE(client.write(1000, 1000) == Status::ok);
    REQUIRE(client.write(page_size, page_size) == Status::ok);
    client.check_contents();
}

// The copy is made in spill memory, or of a page that is there.
TEST_CASE("sharing: a copy finds room in spill memory") {
    for (const char* const devices : {"h", "s"}) {
        for (const char* const spills : {"h", "s", "f"}) {
            CAPTURE(devices);
            CAPTURE(spills);
            Client client({.devices = devices,
                           .spills = spills,
                           .size = 4 * page_size,
                           .page_size = page_size});
            client.rig.memories[0]->set_capacity(4 * page_size);
            REQUIRE(client.write(0, 4 * page_size) == Status::ok);
            REQUIRE(client.family.clone().empty());
            REQUIRE(client.write(1000, 3 * page_size) == Status::ok);
            CHECK(client.rig.volume->memory()[1].mapped == 4 * page_size);
            client.check_contents();
            REQUIRE(client.family.clone().empty());
            REQUIRE(client.write(1000, page_size) == Status::ok);
            client.check_contents();
            client.check_counts();
        }
    }
}

}  // namespace
}  // namespace gpunbd::storage::test
