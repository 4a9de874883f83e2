// The parts of `gpunbd attach` that need no kernel client: URIs, uses of a device, the list, swap
// areas, and steps.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "server/tools/attach/attachment.hpp"
#include "server/tools/attach/device.hpp"
#include "server/tools/attach/generic_socket.hpp"
#include "server/tools/attach/holders.hpp"
#include "server/tools/attach/step.hpp"
#include "server/tools/attach/swap.hpp"
#include "tests/temporary_folder.hpp"
#include "tests/test.hpp"

namespace gpunbd::attach {
namespace {

namespace fs = std::filesystem;

class FakeRoot : public gpunbd::test::TemporaryFolder {
 public:
    FakeRoot() {
        put("sys/block/nbd0/dev", "43:0\n");
        put("sys/block/nbd0/nbd0p1/dev", "259:7\n");
        put("sys/block/nbd0/size", "2048\n");
        put("proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n");
        put("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n");
    }
    // Adds the text to the file.
    void put(const std::string& name, const std::string& text) const {
        write(name, read(name) + text);
    }
    std::string folder() const { return path() + "/"; }
    Device device(std::uint32_t number = 0) const { return Device(number, folder()); }
};

std::string joined_holders(const FakeRoot& root) { return joined_uses(holders_of(root.device())); }

TEST_CASE("attach: lists the uses of a device") {
    const FakeRoot root;
    CHECK(joined_holders(root).empty());
    root.put("proc/self/mountinfo", "30 22 43:0 / /mnt/a\\040b rw shared:1 master:2 - ext4 x rw\n");
    CHECK(joined_holders(root) == "is mounted on /mnt/a b");
    root.put("sys/block/nbd0/nbd0p2/dev", "259:8\n");
    root.put("proc/self/mountinfo", "31 22 259:7 / /part rw - xfs /dev/nbd0p1 rw\n");
    root.put("proc/self/mountinfo", "32 22 0:44 / /btrfs rw - btrfs /dev/nbd0 rw\n");
    root.put("proc/self/mountinfo", "33 22 43:32 / /other rw - ext4 /dev/nbd01 rw\n");
    root.put("proc/self/mountinfo", "34 22 0:45 / /x\\012y rw - btrfs /dev/nbd0p2 rw\n");
    root.put("sys/block/nbd0/holders/md5/x", "");
    root.put("sys/block/nbd0/nbd0p1/holders/dm-3/x", "");
    CHECK(joined_holders(root) ==
          "is mounted on /mnt/a b, is mounted on /btrfs, is mounted on /part, "
          "is mounted on '/x\\ny', is a part of md5, is a part of dm-3");
}

TEST_CASE("attach: gives the commands that release a device") {
    const FakeRoot root;
    const auto remedies = [&] { return joined_remedies(holders_of(root.device())); };
    SUBCASE("dm-crypt, which is mounted") {
        root.put("sys/block/nbd0/holders/dm-0/x", "");
        root.put("sys/block/dm-0/dev", "254:0\n");
        root.put("sys/block/dm-0/dm/name", "secret\n");
        root.put("sys/block/dm-0/dm/uuid", "CRYPT-LUKS1-0123-secret\n");
        root.put("proc/self/mountinfo", "30 22 254:0 / /mnt rw - ext4 /dev/mapper/secret rw\n");
        CHECK(joined_holders(root) == "is a part of dm-0 (secret), dm-0 is mounted on /mnt");
        CHECK(remedies() == "umount /mnt && cryptsetup close secret");
    }
    SUBCASE("a mirror of LVM: only the volume itself is deactivated") {
        for (const char* part : {"dm-0", "dm-1"}) {
            const std::string folder = std::string("sys/block/") + part;
            root.put(std::string("sys/block/nbd0/holders/") + part + "/x", "");
            root.put(folder + "/dm/uuid", "LVM-abc-real\n");
            root.put(folder + "/dm/name", std::string("a--b-safe_") + part + "\n");
            root.put(folder + "/holders/dm-2/x", "");
        }
        root.put("sys/block/dm-2/dm/uuid", "LVM-abc\n");
        root.put("sys/block/dm-2/dm/name", "a--b-safe\n");
        root.put("proc/swaps", "/dev/dm-2 partition 8 0 -2\n");
        CHECK(joined_holders(root) ==
              "is a part of dm-0 (a--b-safe_dm-0), is a part of dm-1 (a--b-safe_dm-1), "
              "is a part of dm-2 (a--b-safe), dm-2 is swapped to");
        CHECK(remedies() == "swapoff /dev/dm-2 && lvchange -an a-b/safe");
    }
    SUBCASE("an array with a partition") {
        root.put("sys/block/nbd0/holders/md5/x", "");
        root.put("sys/block/md5/dev", "9:5\n");
        root.put("sys/block/md5/md5p1/dev", "259:9\n");
        root.put("proc/self/mountinfo", "30 22 259:9 / /mnt rw - ext4 /dev/md5p1 rw\n");
        CHECK(contains(joined_holders(root), "md5p1 is mounted on /mnt"));
        CHECK(remedies() == "umount /mnt && mdadm --stop /dev/md5");
    }
    SUBCASE("a program") {
        root.put("proc/78/comm",
                 "d\x1b"
                 "d\n");
        root.put("proc/78/fd/x", "");
        fs::create_symlink("/dev/nbd0p1", root.path("proc/78/fd/3"));
        root.put("proc/79/fd/x", "");
        fs::create_symlink("/dev/nbd01", root.path("proc/79/fd/3"));
        CHECK(joined_holders(root) == "is open in process 78 ('d\\x1bd')");
        CHECK(remedies() == "kill 78");
    }
    SUBCASE("a cycle, which a real sysfs does not have") {
        root.put("sys/block/nbd0/holders/dm-0/x", "");
        root.put("sys/block/dm-0/holders/dm-0/x", "");
        CHECK(joined_holders(root) == "is a part of dm-0");
    }
}

TEST_CASE("attach: finds the swap areas on a device") {
    const FakeRoot root;
    CHECK(swaps_on(root.device()).empty());
    root.put("proc/swaps", "/dev/nbd01 partition 8 0 -2\n/dev/nbd0 partition 8 0 50\n");
    root.put("proc/swaps", "/dev/nbd0p1 partition 8 0 -3\n");
    std::string files;
    for (const SwapArea& each : swaps_on(root.device())) files += each.file + " ";
    CHECK(files == "/dev/nbd0 /dev/nbd0p1 ");
}

TEST_CASE("attach: swap that does not fit into memory stays on") {
    const FakeRoot root;
    const auto refused = [&] {
        const auto failed = no_room_for(read_swap_areas(root.folder()).at(0), root.folder());
        return failed ? failed->text : "";
    };
    root.put("proc/swaps", "/dev/nbd0 partition 1048576 93184 50\n");  // 91 MiB are used
    CHECK(refused().empty());  // the available memory is unknown
    root.put("proc/meminfo", "MemTotal:         262144 kB\nMemFree:           20000 kB\n");
    root.put("proc/meminfo", "MemAvailable:      48128 kB\n");
    CHECK(refused() ==
          "the swapped-out memory on /dev/nbd0 (91 MiB) does not fit into RAM: 47 MiB are "
          "available there, 0 bytes in other swap, and 24 MiB have to stay free; end programs, or "
          "add other swap, first");
    // Compressed memory does not count as other swap; a disk counts with its free space.
    root.put("proc/swaps", "/dev/zram0 partition 1048576 0 100\n");
    CHECK_FALSE(refused().empty());
    root.put("proc/swaps", "/dev/sda2 partition 1048576 978943 -2\n");  // 68 MiB and 1 KiB free
    CHECK(refused().empty());
}

TEST_CASE("attach: the exact limit of the swap that fits") {
    for (const bool fits : {true, false}) {
        const FakeRoot root;
        root.put("proc/meminfo", "MemTotal: 262144 kB\n");
        const long cpus = 3 * ::sysconf(_SC_PAGESIZE) / 1024;
        const long available = 117760 - cpus - (fits ? 0 : 1);
        root.put("proc/meminfo", fmt::format("MemAvailable: {} kB\n", available));
        root.put("proc/zoneinfo", "  pagesets\n    cpu: 0\n              count: 1\n");  // pages
        root.put("proc/zoneinfo", "              high: 9\n    cpu: 1\n              count: 2\n");
        root.put("proc/swaps", "/dev/nbd0 partition 1048576 93184 50\n");
        CHECK(fits == !no_room_for(read_swap_areas(root.folder()).at(0), root.folder()));
    }
}

TEST_CASE("attach: lists attached devices") {
    const FakeRoot root;
    CHECK(attachment_table(root.folder()) == "no device is attached\n");
    CHECK(attachment_json(root.folder()) == "{\"attached\":[]}\n");
    root.put("sys/block/nbd0/pid", "77\n");
    root.put("sys/block/nbd10/pid", "78\n");
    root.put("sys/block/nbd10/size", "0\n");
    root.put("sys/block/nbd2/pid", "79\n");
    root.put("sys/block/nbd2/backend", "4c7f\n");
    root.put("proc/77/cmdline", std::string("gpunbd\0attach\0nbd://h/x\0/dev/nbd0\0", 34));
    // The number was reused by another process.
    root.put("proc/79/cmdline", std::string("gpunbd\0attach\0nbd://h/y\0/dev/nbd1\0", 34));
    root.put("proc/swaps", "/dev/nbd0 partition 8 0 50\n");
    CHECK(attachment_table(root.folder()) ==
          "DEVICE      SIZE     PROCESS  URI          INSTANCE  USE\n"
          "/dev/nbd0   1 MiB    77       'nbd://h/x'  -         is swapped to as /dev/nbd0\n"
          "/dev/nbd2   0 bytes  -        -            4c7f      -\n"
          "/dev/nbd10  0 bytes  -        -            -         -\n");
    CHECK(attachment_json(root.folder()) ==
          "{\"attached\":[{\"device\":\"/dev/nbd0\",\"size\":1048576,\"process\":77,"
          "\"uri\":\"nbd://h/x\",\"instance\":null,\"uses\":[\"is swapped to as /dev/nbd0\"]},"
          "{\"device\":\"/dev/nbd2\",\"size\":0,\"process\":null,\"uri\":null,"
          "\"instance\":\"4c7f\",\"uses\":[]},"
          "{\"device\":\"/dev/nbd10\",\"size\":0,\"process\":null,\"uri\":null,"
          "\"instance\":null,\"uses\":[]}]}\n");
}

TEST_CASE("attach: the waiting caller of --background is no owner of a device") {
    const FakeRoot root;
    const auto attaches = [&](pid_t process) {
        root.put("proc/" + std::to_string(process) + "/cmdline",
                 std::string("gpunbd\0attach\0nbd://h/x\0/dev/nbd0\0", 34));
    };
    attaches(::getpid());
    attaches(::getppid());
    CHECK_FALSE(owner_of(root.device()));
    attaches(::getpid() + 1);
    const auto owner = owner_of(root.device());
    REQUIRE(owner);
    CHECK(owner->process == ::getpid() + 1);
}

TEST_CASE("attach: creates swap on an empty device only") {
    const FakeRoot root;
    const std::string file = root.path("disk");
    constexpr std::uint64_t size = 1 << 20;
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const auto start_with = [&](std::size_t at, const std::string& text) {
        std::string disk(size, '\0');
        disk.replace(at, text.size(), text);
        root.write("disk", disk);
        return disk;
    };
    start_with(0, "");
    REQUIRE_FALSE(make_swap(file, size));
    const std::string made = root.read("disk");
    CHECK(made.substr(page - 10, 10) == "SWAPSPACE2");
    CHECK(made.substr(1024, 12) == std::string("\x01\0\0\0\xff\0\0\0\0\0\0\0", 12)
                                       .replace(4, 1, 1, static_cast<char>(size / page - 1)));
    CHECK(made.substr(page) == std::string(size - page, '\0'));
    REQUIRE_FALSE(make_swap(file, size));
    CHECK(root.read("disk") == made);  // an existing swap area is not changed
    for (const std::size_t at : {std::size_t{0}, std::size_t{510}, std::size_t{1080},
                                 std::size_t{65600}, std::size_t{(128 << 10) - 1}}) {
        CAPTURE(at);
        const std::string before = start_with(at, "x");
        const auto failed = make_swap(file, size);
        REQUIRE(failed);
        CHECK(contains(failed->text, "wipefs -a"));
        CHECK(root.read("disk") == before);
    }
    CHECK(make_swap(file, 9 * page));
    fs::resize_file(file, 1000);
    CHECK(make_swap(file, size));  // the device is smaller than the given size
    CHECK(make_swap(root.path("none"), size));
}

std::optional<Failure> result_of(const std::function<std::optional<Failure>()>& work) {
    auto step = Step::begin(work);
    REQUIRE(step.has_value());
    return step->result();
}

TEST_CASE("attach: a step reports its result") {
    CHECK_FALSE(result_of([] { return std::nullopt; }));
    CHECK(result_of([] { return Failure{"why"}; })->text == "why");
    CHECK(result_of([] { return Failure{std::string(100'000, 'x')}; })->text.size() == 4096);
    CHECK(contains(result_of([]() -> std::optional<Failure> {
                       ::raise(SIGKILL);
                       return std::nullopt;
                   })->text,
                   "killed"));
}

TEST_CASE("attach: an attribute longer than its message is rejected") {
    GenericMessage message(1, 2, 3);
    message.number(7, std::uint32_t{5});
    const auto whole = message.finished(1);
    const Attributes attributes = whole.subspan(20);
    CHECK(find_number<std::uint32_t>(attributes, 7) == 5);
    CHECK_FALSE(find_number<std::uint64_t>(attributes, 7));
    for (std::size_t size = 0; size != attributes.size(); ++size) {
        CAPTURE(size);
        const std::vector<std::byte> part(attributes.begin(),
                                          attributes.begin() + static_cast<std::ptrdiff_t>(size));
        CHECK_FALSE(find_number<std::uint32_t>(part, 7));
    }
}

}  // namespace
}  // namespace gpunbd::attach
