// What the doctor says of machines that are made up: folders with the files that it looks at.
#include <doctest/doctest.h>
#include <stdlib.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>

#include "server/doctor/doctor.hpp"
#include "server/doctor/topics.hpp"

namespace gpunbd::server::test {
namespace {

using Verdict = Diagnosis::Verdict;

std::string made_folder() {
    std::string folder = "/tmp/gpunbd-doctor-XXXXXX";
    REQUIRE(::mkdtemp(folder.data()) != nullptr);
    return folder;
}

class MadeUpMachine : public Machine {
 public:
    MadeUpMachine() : Machine(made_folder()) {}
    ~MadeUpMachine() override { std::filesystem::remove_all(root()); }
    void put(const std::string& path, const std::string& text) const {
        const std::filesystem::path file = root() + path;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file) << text << '\n';
    }
    bool capable(int) const override { return capable_; }
    rlim_t limit(int) const override { return limit_; }
    std::optional<std::string> first_line_of(const std::vector<std::string>&) const override {
        return line_;
    }

    bool capable_ = true;
    rlim_t limit_ = RLIM_INFINITY;
    std::optional<std::string> line_;
};

Diagnosis of(const Diagnoses& all, const std::string& what) {
    for (const Diagnosis& each : all) {
        if (each.what == what) return each;
    }
    FAIL("nothing about " << what);
    return {};
}

TEST_CASE("doctor: the kernel's client") {
    MadeUpMachine machine;
    CHECK(of(look_at_kernel_client(machine), "nbd module").verdict == Verdict::fail);
    CHECK(of(look_at_kernel_client(machine), "nbd module").remedy.starts_with("modprobe nbd"));
    machine.put("/sys/module/nbd/parameters/max_part", "0");
    CHECK(of(look_at_kernel_client(machine), "nbd module").verdict == Verdict::ok);
    CHECK(of(look_at_kernel_client(machine), "partitions").verdict == Verdict::warn);
    machine.put("/sys/module/nbd/parameters/max_part", "16");
    CHECK(of(look_at_kernel_client(machine), "partitions").verdict == Verdict::ok);
    CHECK(of(look_at_kernel_client(machine), "NBD devices").verdict == Verdict::warn);
    // One that nothing is attached to says nothing.
    machine.put("/sys/block/nbd0/queue/max_sectors_kb", "128");
    CHECK(of(look_at_kernel_client(machine), "size of requests").verdict == Verdict::ok);
    CHECK(of(look_at_kernel_client(machine), "NBD devices").is == "1 of 1 are free");
    machine.put("/sys/block/nbd0/pid", "12");
    CHECK(of(look_at_kernel_client(machine), "size of requests").verdict == Verdict::warn);
    CHECK(of(look_at_kernel_client(machine), "NBD devices").verdict == Verdict::warn);
    machine.put("/sys/block/nbd1/queue/max_sectors_kb", "128");
    CHECK(of(look_at_kernel_client(machine), "NBD devices").verdict == Verdict::ok);
    machine.put("/sys/block/nbd0/queue/max_sectors_kb", "1024");
    CHECK(of(look_at_kernel_client(machine), "size of requests").verdict == Verdict::ok);
    CHECK(of(look_at_kernel_client(machine), "right to attach devices").verdict == Verdict::ok);
    machine.capable_ = false;
    CHECK(of(look_at_kernel_client(machine), "right to attach devices").verdict == Verdict::warn);
}

TEST_CASE("doctor: a machine that swaps to its own server") {
    const MadeUpMachine machine;
    machine.put("/proc/sys/vm/min_free_kbytes", "8000");
    CHECK(of(look_at_swap(machine), "the kernel's reserve of memory").remedy ==
          "sysctl vm.min_free_kbytes=16384");
    machine.put("/proc/sys/vm/min_free_kbytes", "16384");
    CHECK(of(look_at_swap(machine), "the kernel's reserve of memory").verdict == Verdict::ok);
    machine.put("/proc/sys/kernel/sched_rt_runtime_us", "0");
    CHECK(of(look_at_swap(machine), "real-time scheduling").verdict == Verdict::fail);
    machine.put("/proc/sys/kernel/sched_rt_runtime_us", "-1");
    CHECK(of(look_at_swap(machine), "real-time scheduling").verdict == Verdict::ok);
}

TEST_CASE("doctor: clients on other machines") {
    MadeUpMachine machine;
    CHECK(of(look_at_remote(machine), "kernel TLS").verdict == Verdict::warn);
    CHECK(of(look_at_remote(machine), "clients that wait to be accepted").verdict == Verdict::warn);
    machine.put("/sys/module/tls/refcnt", "0");
    machine.put("/proc/sys/net/core/somaxconn", "4096");
    CHECK(of(look_at_remote(machine), "kernel TLS").verdict == Verdict::ok);
    CHECK(of(look_at_remote(machine), "clients that wait to be accepted").verdict == Verdict::ok);
    CHECK(of(look_at_remote(machine), "open files").verdict == Verdict::ok);
    machine.limit_ = 1024;
    CHECK(of(look_at_remote(machine), "open files").verdict == Verdict::warn);
}

TEST_CASE("doctor: a GPU") {
    MadeUpMachine machine;
    CHECK(of(look_at_gpus(machine), "GPU").verdict == Verdict::warn);
    const std::string card = "/sys/bus/pci/devices/0000:65:00.0/";
    machine.put(card + "vendor", "0x10de");
    machine.put(card + "class", "0x030200");
    machine.put(card + "numa_node", "1");
    const std::string first = "0x00000000a3000000 0x00000000a3ffffff 0x0000000000040200\n";
    machine.put(card + "resource",
                first + "0x0000000090000000 0x000000009fffffff 0x000000000014220c");
    Diagnoses found = look_at_gpus(machine);
    CHECK(of(found, "NVIDIA driver").verdict == Verdict::fail);
    CHECK(!of(found, "NVIDIA driver").remedy.empty());
    CHECK(of(found, "persistence mode").verdict == Verdict::warn);
    CHECK(of(found, "memory of 0000:65:00.0 that the CPU sees").is == "256 MiB");
    CHECK(of(found, "memory of 0000:65:00.0 that the CPU sees").verdict == Verdict::warn);
    CHECK(of(found, "NUMA node of 0000:65:00.0").is == "1");
    machine.put(card + "numa_node", "-1");
    CHECK(of(look_at_gpus(machine), "NUMA node of 0000:65:00.0").verdict == Verdict::ok);
    machine.put("/sys/devices/system/node/node1/cpulist", "8-15");
    CHECK(of(look_at_gpus(machine), "NUMA node of 0000:65:00.0").verdict == Verdict::warn);
    machine.line_ = "Disabled";
    CHECK(of(look_at_gpus(machine), "persistence mode").verdict == Verdict::warn);
    machine.line_ = "Enabled";
    CHECK(of(look_at_gpus(machine), "persistence mode").verdict == Verdict::ok);
    machine.line_.reset();
    machine.put(card + "resource",
                first + "0x0000202000000000 0x0000203fffffffff 0x000000000014220c");
    machine.put("/proc/driver/nvidia/version", "NVRM version: 550.54\nGCC version: 12");
    machine.put("/run/nvidia-persistenced/socket", "");
    found = look_at_gpus(machine);
    CHECK(of(found, "NVIDIA driver").is == "NVRM version: 550.54");
    CHECK(of(found, "persistence mode").verdict == Verdict::ok);
    CHECK(of(found, "memory of 0000:65:00.0 that the CPU sees").is == "128 GiB");
    machine.put(card + "resource", first + "0x00");
    CHECK(of(look_at_gpus(machine), "memory of 0000:65:00.0 that the CPU sees").verdict ==
          Verdict::warn);
}

TEST_CASE("doctor: a GPU that the CPU reaches, and one that it does not") {
    storage::DeviceInfo gpu;
    gpu.id = "cuda:1";
    gpu.access = "mapped: writes are received into GPU memory";
    CHECK(look_at_mapping(gpu).verdict == Verdict::ok);
    CHECK(look_at_mapping(gpu).what == "mapping of cuda:1");
    gpu.access = "not mapped (there is no libvulkan.so.1): by kernels and copy engines";
    CHECK(look_at_mapping(gpu).verdict == Verdict::warn);
    CHECK(look_at_mapping(gpu).is == gpu.access);
}

TEST_CASE("doctor: contents that outlive the server") {
    MadeUpMachine machine;
    CHECK(of(look_at_keeping(machine), "supervisor").is.find("gpunbd keep") != std::string::npos);
    machine.line_ = "systemd 252 (252.39-1~deb12u1)";
    CHECK(of(look_at_keeping(machine), "supervisor").verdict == Verdict::ok);
    machine.line_ = "systemd 219";
    CHECK(of(look_at_keeping(machine), "supervisor").verdict == Verdict::fail);
    machine.line_ = "systemd of another kind";
    CHECK(of(look_at_keeping(machine), "supervisor").verdict == Verdict::ok);
    machine.limit_ = 4096;
    CHECK(of(look_at_keeping(machine), "descriptors").verdict == Verdict::warn);
    const std::string huge = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    machine.put(huge, "always within_size advise never [deny] force");
    CHECK(of(look_at_keeping(machine), "huge pages").verdict == Verdict::warn);
    machine.put(huge, "always within_size advise [never] deny force");
    CHECK(of(look_at_keeping(machine), "huge pages").verdict == Verdict::ok);
}

TEST_CASE("doctor: what it prints") {
    const Diagnoses found{well("one", "fine"), doubtful("two", "odd", "mend it"),
                          bad("three", "broken", "make it \"new\"")};
    CHECK(as_lines(found) ==
          "ok    one: fine\nwarn  two: odd; mend it\nfail  three: broken; make it \"new\"\n");
    const auto json = boost::json::parse(as_json(found));
    const auto& list = json.at("diagnoses").as_array();
    REQUIRE(list.size() == 3);
    CHECK(list[2].at("verdict").as_string() == "fail");
    CHECK(list[2].at("remedy").as_string() == "make it \"new\"");
}

TEST_CASE("doctor: a topic is a part of all") {
    const MadeUpMachine machine;
    std::size_t parts = 0;
    for (const char* topic : {"swap", "remote", "gpu", "keep"}) {
        const std::size_t count = diagnose(topic, machine).size();
        CHECK(count != 0);
        parts += count;
    }
    CHECK(diagnose("", machine).size() == parts);
}

}  // namespace
}  // namespace gpunbd::server::test
