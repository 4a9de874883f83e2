#include "server/supervisor/descriptor_store.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/base/process.hpp"
#include "tests/server/supervisor/supervisor.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

using namespace std::chrono_literals;

bool says(const std::optional<std::string>& wrong, const std::string& part) {
    INFO(wrong.value_or("nothing went wrong"));
    const bool found =
        wrong && wrong->find(part) != std::string::npos && wrong->find('\n') == std::string::npos;
    CHECK(found);
    return found;
}

bool same_file(int one, int other) {
    struct stat a {};
    struct stat b {};
    return ::fstat(one, &a) == 0 && ::fstat(other, &b) == 0 && a.st_ino == b.st_ino &&
           a.st_dev == b.st_dev;
}

TEST_CASE("descriptor store: sends systemd's messages to a path and to an abstract name") {
    const gpunbd::test::TemporaryFolder folder;
    for (const std::string& path : {std::string(), folder.path("notify")}) {
        const PlayedSupervisor supervisor(path);
        DescriptorStore store(supervisor.way, std::nullopt, {});
        const OwnedFd memory(::memfd_create("slab", MFD_CLOEXEC));
        CHECK(store.store("gpunbd/slab 1", memory.get()) == std::nullopt);
        CHECK(store.remove("gpunbd/slab 1") == std::nullopt);
        CHECK(supervisor.way.send("READY=1") == std::nullopt);
        const auto stored = supervisor.next();
        REQUIRE(stored);
        CHECK(stored->text == "FDSTORE=1\nFDNAME=gpunbd/slab 1\nFDPOLL=0");
        REQUIRE(stored->descriptors.size() == 1);
        CHECK(same_file(stored->descriptors[0].get(), memory.get()));
        const auto removed = supervisor.next();
        REQUIRE(removed);
        CHECK(removed->text == "FDSTOREREMOVE=1\nFDNAME=gpunbd/slab 1");
        CHECK(removed->descriptors.empty());
        CHECK(supervisor.next_text() == "READY=1");
    }
}

TEST_CASE("descriptor store: a barrier returns when the supervisor closes it, not before") {
    const PlayedSupervisor supervisor;
    DescriptorStore store(supervisor.way, 10, {});
    CHECK(says(store.barrier(10ms), "does not answer"));
    auto first = supervisor.next();  // of that barrier
    REQUIRE(first);
    std::jthread later([&] {
        std::optional<PlayedSupervisor::Message> message;
        while (!(message = supervisor.next())) std::this_thread::yield();
        CHECK(message->text == "BARRIER=1");
        CHECK(message->descriptors.size() == 1);
    });
    CHECK(store.barrier(60s) == std::nullopt);
}

TEST_CASE("descriptor store: a barrier fails if its descriptor was closed without a supervisor") {
    const NotifySocket way = way_to(PlayedSupervisor().way.address());
    CHECK(
        says(DescriptorStore(way, 10, {}).barrier(60s), "cannot be notified: Connection refused"));
}

TEST_CASE("descriptor store: an invalid address gives an error of one line") {
    for (const char* address :
         {"relative/path", "vsock:2:1234", "@", "/", "/no/such/folder/notify", "unix:/run/x"}) {
        CAPTURE(address);
        says(way_to(address).send("READY=1"), "NOTIFY_SOCKET");
    }
    const std::string long_path = "/" + std::string(107, 'x');
    says(way_to(long_path).send("READY=1"), "is neither a path nor");
    says(way_to("@x" + std::string(107, 'x')).send("READY=1"), "is neither a path nor");
    ::setenv("NOTIFY_SOCKET", "", 1);
    CHECK_FALSE(NotifySocket::from_environment());
    CHECK_FALSE(NotifySocket::from_environment());
}

TEST_CASE("descriptor store: names that the protocol cannot carry are rejected before sending") {
    const PlayedSupervisor supervisor;
    DescriptorStore store(supervisor.way, std::nullopt, {});
    for (const std::string& name :
         std::vector<std::string>{std::string(), "a:b", "a\nFDSTOREREMOVE=1", "\x7f", "\xc3\xa4",
                                  std::string("a\0b", 3), std::string(256, 'x')}) {
        CAPTURE(name);
        CHECK(says(store.store(name, STDIN_FILENO), "name"));
        CHECK(says(store.remove(name), "name"));
        CHECK_FALSE(supervisor.next());
    }
    CHECK(store.store(std::string(255, 'x'), STDIN_FILENO) == std::nullopt);
}

TEST_CASE("descriptor store: a failure to send is reported, and the descriptor is not counted") {
    const PlayedSupervisor supervisor;
    DescriptorStore store(supervisor.way, 1, {});
    CHECK(says(store.store("a", -1), "Bad file descriptor"));
    CHECK(store.store("a", STDIN_FILENO) == std::nullopt);
    const std::vector<int> many(254, STDIN_FILENO);
    CHECK(says(supervisor.way.send("FDSTORE=1", many), "254 descriptors"));
    CHECK(supervisor.way.send("FDSTORE=1", std::span(many).first(253)) == std::nullopt);
    supervisor.next();
    const auto most = supervisor.next();
    REQUIRE(most);
    CHECK(most->descriptors.size() == 253);
}

TEST_CASE("descriptor store: deferred messages are sent in their order") {
    const PlayedSupervisor supervisor;
    DescriptorStore store(supervisor.way, 3, {});
    store.defer_messages();
    store.add_kept("there");
    {
        const OwnedFd memory(::memfd_create("slab", MFD_CLOEXEC));
        CHECK(store.store("a", memory.get()) == std::nullopt);
    }
    CHECK(says(store.store("b", -1), "Bad file descriptor"));
    CHECK(store.remove("there") == std::nullopt);
    CHECK(store.barrier(60s) == std::nullopt);
    CHECK_FALSE(supervisor.next());
    CHECK(says(store.release_messages(0ms), "does not answer"));
    const auto stored = supervisor.next();
    REQUIRE(stored);
    CHECK(stored->text == "FDSTORE=1\nFDNAME=a\nFDPOLL=0");
    CHECK(stored->descriptors.size() == 1);
    CHECK(supervisor.next_text() == "FDSTOREREMOVE=1\nFDNAME=there");
    CHECK(supervisor.next_text() == "BARRIER=1");
    CHECK(store.store("b", STDIN_FILENO) == std::nullopt);
    CHECK(supervisor.next());
}

TEST_CASE("descriptor store: messages that were not sent stay queued before later ones") {
    LateSupervisor supervisor;
    DescriptorStore store(supervisor.way, 3, {"there"});
    store.defer_messages();
    CHECK(store.remove("there") == std::nullopt);
    CHECK(store.store("a", STDIN_FILENO) == std::nullopt);
    CHECK(says(store.release_messages(0ms), "cannot be notified"));
    CHECK(says(store.store("b", STDIN_FILENO), "cannot be notified"));
    supervisor.start();
    CHECK(store.store("c", STDIN_FILENO) == std::nullopt);
    for (const char* expected : {"FDSTOREREMOVE=1\nFDNAME=there", "FDSTORE=1\nFDNAME=a\nFDPOLL=0",
                                 "FDSTORE=1\nFDNAME=c\nFDPOLL=0"}) {
        CHECK(supervisor.socket->next_text() == expected);
    }
    CHECK_FALSE(supervisor.socket->next());
}

TEST_CASE("descriptor store: a full store rejects descriptors until one is removed") {
    const PlayedSupervisor supervisor;
    DescriptorStore store(supervisor.way, 3, {"there", "there"});
    CHECK(store.store("a", STDIN_FILENO) == std::nullopt);
    CHECK(says(store.store("b", STDIN_FILENO), "stores at most 3 descriptors"));
    CHECK(store.remove("there") == std::nullopt);
    CHECK(store.remove("never there") == std::nullopt);
    CHECK(store.store("b", STDIN_FILENO) == std::nullopt);
    CHECK(store.store("b", STDIN_FILENO) == std::nullopt);
    CHECK(says(store.store("c", STDIN_FILENO), "FileDescriptorStoreMax="));
}

TEST_CASE("descriptor store: the names fit into one environment variable") {
    const PlayedSupervisor supervisor;
    const std::vector<std::string> names(max_all_names / 256, std::string(255, 'x'));
    DescriptorStore store(supervisor.way, std::nullopt, names);
    const std::size_t left = max_all_names % 256;
    CHECK(says(store.store(std::string(left, 'y'), STDIN_FILENO), "available bytes"));
    CHECK(store.store(std::string(left - 1, 'y'), STDIN_FILENO) == std::nullopt);
    CHECK(says(store.store("z", STDIN_FILENO), "available bytes"));
}

TEST_CASE("descriptor store: the capacity that a supervisor announces") {
    const PlayedSupervisor supervisor;
    const auto store_of = [&](const char* text) {
        text != nullptr ? ::setenv("FDSTORE", text, 1) : ::unsetenv("FDSTORE");
        return DescriptorStore::from_environment(supervisor.way, {});
    };
    CHECK(store_of("512")->capacity() == 512);
    CHECK(std::getenv("FDSTORE") == nullptr);
    CHECK(store_of(nullptr)->capacity() == std::nullopt);
    CHECK(store_of("0") == nullptr);
    for (const char* wrong : {"", "x", "-1", "1 ", "99999999999999999999"}) {
        CAPTURE(wrong);
        CHECK_THROWS_AS(store_of(wrong), std::runtime_error);
    }
}

TEST_CASE(
    "open files: the limit is raised as far as possible, and an error names the missing rest") {
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    const rlimit low{.rlim_cur = 64, .rlim_max = before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
    CHECK(with_open_files_limit("epoll: Too many open files") ==
          "epoll: Too many open files: the limit is 64; raise it by LimitNOFILE= (systemd), "
          "--ulimit nofile= (Docker) or ulimit -Hn (a shell)");
    CHECK(with_open_files_limit("epoll: No such file or directory") ==
          "epoll: No such file or directory");
    CHECK(raise_open_files(before.rlim_max) == std::nullopt);
    rlimit now{};
    ::getrlimit(RLIMIT_NOFILE, &now);
    CHECK(now.rlim_cur == before.rlim_max);
    if (before.rlim_max != RLIM_INFINITY) {
        CHECK(says(raise_open_files(before.rlim_max + 1), "LimitNOFILE="));
    }
    ::setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace gpunbd::server::test
