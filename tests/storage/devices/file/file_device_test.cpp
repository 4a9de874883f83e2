// Which files are accepted, what they look like, and how slabs are allocated in them.
#include "storage/devices/file/file_device.hpp"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "storage/devices/device_driver.hpp"
#include "storage/devices/file/file_driver.hpp"
#include "storage/devices/file/spill_file.hpp"
#include "tests/storage/devices/file/file_folder.hpp"
#include "tests/storage/devices/file/no_writes.hpp"
#include "tests/storage/sizes.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

namespace fs = std::filesystem;

const FileDeviceOptions one_mib{.capacity = mib};

// Without "file:PATH: ". Empty: it was opened.
std::string file_refusal(const std::string& path, const FileDeviceOptions& options = one_mib) {
    const std::string text = error_of([&] { return open_file_device(0, path, options); });
    const std::string prefix = "file:" + path + ": ";
    if (!text.empty()) REQUIRE(text.starts_with(prefix));
    return text.empty() ? text : text.substr(prefix.size());
}

struct stat stat_of(const std::string& path) {
    struct stat seen {};
    REQUIRE(::stat(path.c_str(), &seen) == 0);
    return seen;
}

TEST_CASE("file device: the file is private and reserved, and is emptied at the end") {
    const FileFolder folder;
    const std::string path = folder.path("spill");
    const mode_t before = ::umask(0777);
    auto device = open_file_device(3, path, one_mib);
    ::umask(before);
    CHECK(device->number() == 3);
    CHECK(device->info().id == "file:" + path);
    CHECK(device->info().total == mib);
    CHECK(device->available() == mib);
    CHECK(device->use(mib).mapped == 0);
    CHECK(device->exclusive());
    CHECK_FALSE(device->slow_to_allocate());
    CHECK(device->reason_not_kept() == "the contents of the file end with the server");
    CHECK((stat_of(path).st_mode & 07777) == 0600);
    CHECK(static_cast<std::uint64_t>(stat_of(path).st_blocks) * 512 >= mib);
    device.reset();
    CHECK_FALSE(fs::exists(path));
    folder.write("spill", "");
    CHECK(file_refusal(path) == "");
    CHECK(stat_of(path).st_size == 0);  // it was there before, so it stays
}

TEST_CASE("file device: I/O on the file may block, although opening it must not") {
    const FileFolder folder;
    const SpillFile file(folder.path("spill"), mib);
    CHECK((::fcntl(file.descriptor(), F_GETFL) & O_NONBLOCK) == 0);
}

TEST_CASE("file device: a file that an aborted server has left is used again") {
    const FileFolder folder;
    const std::string path = folder.path("spill");
    {
        const auto device = open_file_device(0, path, one_mib);
        fs::copy_file(path, folder.path("left"));
    }
    ::chmod(folder.path("left").c_str(), 0600);
    CHECK(file_refusal(folder.path("left")) == "");
}

TEST_CASE("file device: files that could belong to others are refused and not changed") {
    const FileFolder folder;
    const std::string plain = folder.write("plain", "");
    CHECK(file_refusal(plain) == "");

    fs::create_symlink(plain, folder.path("link"));
    CHECK(file_refusal(folder.path("link")).starts_with("it is a symbolic link"));
    CHECK(file_refusal(folder.path("none/spill")) ==
          "the folder " + folder.path("none") + " does not exist; create it");
    CHECK(file_refusal(folder.path()) == "it is a folder; name a file in it");
    REQUIRE(::mkfifo(folder.path("pipe").c_str(), 0600) == 0);
    CHECK(file_refusal(folder.path("pipe")) == "it is not a regular file");
    for (const mode_t mode : {0640U, 0604U, 0620U}) {
        CHECK(file_refusal(folder.write("open", "", mode)) ==
              "others have permissions for it; chmod 600 it, or remove it");
    }
    const std::string linked = folder.write("linked", "");
    fs::create_hard_link(linked, folder.path("second"));
    CHECK(file_refusal(linked) == "it has been removed, or has other hard links");
    CHECK(file_refusal(folder.write("text", "of a user")) ==
          "it is neither empty nor a spill file of gpunbd; choose another name, or remove it");
    CHECK(stat_of(folder.path("text")).st_size == 9);

    if (::geteuid() != 0) {
        MESSAGE("SKIPPED in part: only root can make a file of another user");
        return;
    }
    const std::string foreign = folder.write("foreign", "");
    REQUIRE(::chown(foreign.c_str(), 12345, 12345) == 0);
    CHECK(file_refusal(foreign) == "it belongs to the user 12345, not to 0, as which gpunbd runs");
}

TEST_CASE("file device: only one device can use a file") {
    const FileFolder folder;
    const std::string path = folder.path("spill");
    auto first = open_file_device(0, path, one_mib);
    CHECK_THROWS_AS(open_file_device(1, path, one_mib), DeviceInUse);
    CHECK(file_refusal(path) == "another gpunbd uses it");
    CHECK(stat_of(path).st_size > 0);
    first.reset();
    CHECK(file_refusal(path) == "");
}

TEST_CASE("file device: needs a size, and space for it") {
    const FileFolder folder;
    const std::string path = folder.path("spill");
    CHECK(file_refusal(path, {}) == "its size is unknown; set its capacity");
    CHECK_FALSE(fs::exists(path));
    {
        const NoWrites none;
        CHECK(contains(file_refusal(path), "(LimitFSIZE=, ulimit -f)"));
    }
    CHECK_FALSE(fs::exists(path));
    // More than any file system has, and more than a file can have.
    CHECK(contains(file_refusal(path, {.capacity = std::uint64_t{1} << 60}), " has "));
    CHECK_FALSE(fs::exists(path));
}

struct Unmount {
    ~Unmount() { ::umount2(folder.c_str(), MNT_DETACH); }
    const std::string& folder;
};

TEST_CASE("file device: leaves nothing in a file system that is too small") {
    const FileFolder folder;
    if (::mount("gpunbd", folder.path().c_str(), "tmpfs", 0, "size=1M") != 0) {
        MESSAGE("SKIPPED: this user cannot mount a small file system");
        return;
    }
    const Unmount at_the_end{folder.path()};
    const std::string path = folder.path("spill");
    CHECK(file_refusal(path, {.capacity = 2 * mib}) ==
          "2 MiB cannot be reserved: its file system has 1 MiB available");
    CHECK_FALSE(fs::exists(path));
    CHECK(file_refusal(path, {.capacity = mib / 2}) == "");
    CHECK(fs::space(folder.path()).available == mib);
}

TEST_CASE("file device: slabs are ranges of the file, and cannot be kept") {
    const FileFolder folder;
    const auto device = open_file_device(0, folder.path("spill"), one_mib);
    Slab first;
    Slab second;
    REQUIRE(device->allocate({.bytes = 256 * kib}, first) == Status::ok);
    REQUIRE(device->allocate({.bytes = 768 * kib, .provision = Provision::full}, second) ==
            Status::ok);
    CHECK(first.cpu == nullptr);
    CHECK(second.address == first.address + 256 * kib);
    CHECK(second.resident);
    CHECK(device->available() == 0);
    Slab refused;
    CHECK(device->allocate({.bytes = 64 * kib}, refused) == Status::no_space);
    CHECK(refused.bytes == 0);
    device->release(first);
    CHECK(device->available() == 256 * kib);
    CHECK(device->allocate({.bytes = 64 * kib, .kept = true}, refused) == Status::io_error);
    device->release(second);
    CHECK(device->available() == mib);
}

TEST_CASE("file driver: the id of a file has one spelling") {
    const config::DriverInfo info = file_driver().info();
    CHECK(info.spill_only);
    CHECK_FALSE(info.completed);
    std::string why_none;
    CHECK(file_driver().enumerate(why_none).empty());
    const std::string longest = "file:/" + std::string(4094, 'x');
    const std::pair<std::string, std::optional<std::string>> rows[] = {
        {"file:/var/lib/gpunbd/spill", "file:/var/lib/gpunbd/spill"},
        {"file:/a b/c:d", "file:/a b/c:d"},
        {"file://a/./b///c/", "file:/a/b/c"},
        {"file:/..a/b..", "file:/..a/b.."},
        {longest, longest},
        {longest + "x", {}},
        {"file:/a/../b", {}},
        {"file:/..", {}},
        {"file:/", {}},
        {"file:/./", {}},
        {"file:", {}},
        {"file:spill", {}},
        {"file", {}},
        {"/spill", {}},
        {"file:/a\nb", {}},
        {"file:/a\x7f", {}},
        {std::string("file:/a\0b", 9), {}},
    };
    for (const auto& [text, id] : rows) {
        CAPTURE(text);
        CHECK(info.parse(text) == id);
    }
}

}  // namespace
}  // namespace gpunbd::storage::test
