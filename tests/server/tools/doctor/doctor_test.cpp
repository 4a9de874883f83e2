// Runs the doctor's checks on simulated machines: folders with the files that it reads.
#include <boost/json.hpp>
#include <filesystem>

#include "server/tools/doctor/subcommand.hpp"
#include "server/tools/doctor/tls_files.hpp"
#include "server/tools/doctor/topics.hpp"
#include "server/tools/tls_setup/subcommand.hpp"
#include "storage/devices/cuda/cuda_diagnosis.hpp"
#include "tests/temporary_folder.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

using Verdict = Diagnosis::Verdict;

class MadeUpMachine : gpunbd::test::TemporaryFolder, public Machine {
 public:
    MadeUpMachine() : Machine(path()) {}
    void put(const std::string& file, const std::string& text) const { write(file, text + '\n'); }
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

TEST_CASE("doctor: checks the requirements of ublk") {
    MadeUpMachine machine;
    machine.put("/proc/sys/kernel/osrelease", "6.1.0-56-amd64");
    machine.put("/proc/sys/kernel/io_uring_disabled", "2");
    machine.capable_ = false;
    Diagnoses found = check_ublk(machine);
    CHECK(of(found, "kernel for ublk").verdict == Verdict::warn);
    CHECK(of(found, "ublk_drv module").remedy.starts_with("modprobe ublk_drv"));
    CHECK(of(found, "io_uring").remedy == "sysctl kernel.io_uring_disabled=0");
    CHECK(of(found, "right to make ublk devices").verdict == Verdict::warn);

    machine.put("/proc/sys/kernel/osrelease", "6.12.117+deb12-amd64");
    machine.put("/proc/sys/kernel/io_uring_disabled", "1");
    machine.put("/dev/ublk-control", "");
    machine.capable_ = true;
    for (const Diagnosis& each : check_ublk(machine)) CHECK(each.verdict == Verdict::ok);
}

TEST_CASE("doctor: checks the kernel's client") {
    MadeUpMachine machine;
    CHECK(of(check_kernel_client(machine), "nbd module").verdict == Verdict::fail);
    CHECK(of(check_kernel_client(machine), "nbd module").remedy.starts_with("modprobe nbd"));
    machine.put("/sys/module/nbd/parameters/max_part", "0");
    CHECK(of(check_kernel_client(machine), "nbd module").verdict == Verdict::ok);
    CHECK(of(check_kernel_client(machine), "partitions").verdict == Verdict::warn);
    machine.put("/sys/module/nbd/parameters/max_part", "16");
    CHECK(of(check_kernel_client(machine), "partitions").verdict == Verdict::ok);
    CHECK(of(check_kernel_client(machine), "NBD devices").verdict == Verdict::warn);
    // The limit of a device that is not attached is ignored.
    machine.put("/sys/block/nbd0/queue/max_sectors_kb", "128");
    CHECK(of(check_kernel_client(machine), "size of requests").verdict == Verdict::ok);
    CHECK(of(check_kernel_client(machine), "NBD devices").is == "1 of 1 are free");
    machine.put("/sys/block/nbd0/pid", "12");
    CHECK(of(check_kernel_client(machine), "size of requests").verdict == Verdict::warn);
    CHECK(of(check_kernel_client(machine), "NBD devices").verdict == Verdict::warn);
    machine.put("/sys/block/nbd1/queue/max_sectors_kb", "128");
    CHECK(of(check_kernel_client(machine), "NBD devices").verdict == Verdict::ok);
    machine.put("/sys/block/nbd0/queue/max_sectors_kb", "1024");
    CHECK(of(check_kernel_client(machine), "size of requests").verdict == Verdict::ok);
    CHECK(of(check_kernel_client(machine), "right to attach devices").verdict == Verdict::ok);
    machine.capable_ = false;
    CHECK(of(check_kernel_client(machine), "right to attach devices").verdict == Verdict::warn);
}

TEST_CASE("doctor: checks a machine that swaps to its own server") {
    const MadeUpMachine machine;
    const auto reserve = [&] { return of(check_swap(machine), "the kernel's reserve of memory"); };
    const std::tuple<const char*, const char*, const char*> rows[] = {
        {"222000", "1", "37000"},
        {"786432", "1", "69632"},
        {"786432", "3", "98304"},
        {"64000000", "f,0000000f", "270336"}};
    for (const auto& [memory, cpus, fit] : rows) {
        CAPTURE(memory);
        machine.put("/proc/self/status", std::string("Name:\tgpunbd\nCpus_allowed:\t") + cpus +
                                             "\nCpus_allowed_list:\t0-63\n");
        machine.put("/proc/meminfo", std::string("MemTotal:  ") + memory + " kB\nMemFree: 1 kB");
        machine.put("/proc/sys/vm/min_free_kbytes", "8000");
        CHECK(reserve().verdict == Verdict::warn);
        CHECK(reserve().remedy == std::string("sysctl vm.min_free_kbytes=") + fit);
        machine.put("/proc/sys/vm/min_free_kbytes", fit);
        CHECK(reserve().verdict == Verdict::ok);
    }
    machine.put("/proc/meminfo", "MemTotal:  222000 kB");
    machine.put("/proc/sys/vm/min_free_kbytes", "65536");
    CHECK(reserve().verdict == Verdict::warn);
    CHECK(contains(reserve().is, "more than a fifth"));
    CHECK(reserve().remedy == "sysctl vm.min_free_kbytes=37000");
    machine.put("/proc/sys/vm/compact_unevictable_allowed", "1");
    CHECK(of(check_swap(machine), "locked memory").remedy ==
          "sysctl vm.compact_unevictable_allowed=0");
    machine.put("/proc/sys/vm/compact_unevictable_allowed", "0");
    CHECK(of(check_swap(machine), "locked memory").verdict == Verdict::ok);
    machine.put("/proc/sys/kernel/sched_rt_runtime_us", "0");
    CHECK(of(check_swap(machine), "real-time scheduling").verdict == Verdict::fail);
    machine.put("/proc/sys/kernel/sched_rt_runtime_us", "-1");
    CHECK(of(check_swap(machine), "real-time scheduling").verdict == Verdict::ok);
}

TEST_CASE("doctor: checks a server for remote clients") {
    MadeUpMachine machine;
    CHECK(of(check_remote(machine), "kernel TLS").verdict == Verdict::warn);
    CHECK(of(check_remote(machine), "clients that wait to be accepted").verdict == Verdict::warn);
    machine.put("/sys/module/tls/refcnt", "0");
    machine.put("/proc/sys/net/core/somaxconn", "4096");
    CHECK(of(check_remote(machine), "kernel TLS").verdict == Verdict::ok);
    CHECK(of(check_remote(machine), "clients that wait to be accepted").verdict == Verdict::ok);
    CHECK(of(check_remote(machine), "open files").verdict == Verdict::ok);
    machine.limit_ = 1024;
    CHECK(of(check_remote(machine), "open files").verdict == Verdict::warn);
    // Kernel TLS that is not a module.
    const MadeUpMachine built_in;
    built_in.put("/proc/sys/net/ipv4/tcp_available_ulp", "espintcp mptcp");
    CHECK(of(check_remote(built_in), "kernel TLS").verdict == Verdict::warn);
    built_in.put("/proc/sys/net/ipv4/tcp_available_ulp", "espintcp mptcp tls");
    CHECK(of(check_remote(built_in), "kernel TLS").verdict == Verdict::ok);
}

// A folder with TLS files, and the doctor's findings about them.
class TlsFolder : public gpunbd::test::TemporaryFolder {
 public:
    explicit TlsFolder(int days = 730) {
        static_cast<void>(set_up_tls({.folder = path("tls"),
                                      .hosts = {"storage.example.org", "10.1.2.3", "fe80::1"},
                                      .clients = {},
                                      .users = {"alice"},
                                      .days = days}));
    }
    std::string file(const std::string& name) const { return path("tls/" + name); }
    void take(const std::string& name, const TlsFolder& other) const {
        std::filesystem::copy_file(other.file(name), file(name),
                                   std::filesystem::copy_options::overwrite_existing);
    }
    Diagnosis look(const std::string& what) const {
        return of(check_tls_files({.mode = config::TlsMode::required,
                                   .certificates = path("tls"),
                                   .psk = file("keys.psk")}),
                  what);
    }
};

TEST_CASE("doctor: valid TLS files") {
    const TlsFolder tls;
    const std::string certificate = tls.file("server-cert.pem");
    CHECK(tls.look(certificate).verdict == Verdict::ok);
    CHECK(tls.look(certificate).is.starts_with("valid until 20"));
    CHECK(tls.look("names of " + certificate).is == "storage.example.org, 10.1.2.3, fe80::1");
    for (const std::string& what : {tls.file("server-key.pem"), tls.file("ca-cert.pem"),
                                    std::string("authority"), tls.file("keys.psk")}) {
        CHECK(tls.look(what).verdict == Verdict::ok);
    }
    CHECK(check_tls_files({.mode = config::TlsMode::off, .certificates = "/no/such", .psk = {}})
              .empty());
}

TEST_CASE("doctor: expiring certificates") {
    const TlsFolder soon(29);
    const std::string certificate = soon.file("server-cert.pem");
    CHECK(soon.look(certificate).verdict == Verdict::warn);
    CHECK(soon.look(certificate).is.starts_with("expires in 2"));
    const TlsFolder late(31);
    CHECK(late.look(late.file("server-cert.pem")).verdict == Verdict::ok);
    const TlsFolder ended(-1);
    CHECK(ended.look(ended.file("server-cert.pem")).verdict == Verdict::fail);
    CHECK(ended.look(ended.file("server-cert.pem")).is.starts_with("expired on 20"));
    CHECK(ended.look("authority").verdict == Verdict::warn);
}

TEST_CASE("doctor: keys that other users can read, or that do not match") {
    const TlsFolder tls;
    const TlsFolder other;
    tls.take("server-key.pem", other);
    CHECK(tls.look(tls.file("server-key.pem")).is == "belongs to another certificate");
    tls.write("tls/server-key.pem", "no key");
    CHECK(contains(tls.look("private key").is, "is not a private key"));
    for (const auto& [file, what] :
         {std::pair("server-key.pem", "private key"), std::pair("keys.psk", "shared keys")}) {
        std::filesystem::permissions(tls.file(file), std::filesystem::perms(0644));
        CHECK(tls.look(what).verdict == Verdict::fail);
        CHECK(contains(tls.look(what).is, "all users may open it"));
    }
}

TEST_CASE("doctor: unusable certificates") {
    const TlsFolder tls;
    const TlsFolder other;
    tls.take("ca-cert.pem", other);
    CHECK(tls.look("authority").verdict == Verdict::warn);
    tls.write("tls/ca-cert.pem", "nothing");
    CHECK(tls.look(tls.file("ca-cert.pem")).is == "contains no PEM certificate");
    tls.take("server-cert.pem", other);
    CHECK(tls.look(tls.file("server-key.pem")).verdict == Verdict::fail);
    std::filesystem::remove(tls.file("server-cert.pem"));
    CHECK(tls.look(tls.file("server-cert.pem")).is == "cannot be read: No such file or directory");
    // The certificate of an authority has no names.
    std::filesystem::copy_file(other.file("ca-cert.pem"), tls.file("server-cert.pem"));
    CHECK(tls.look("names of " + tls.file("server-cert.pem")).verdict == Verdict::warn);
}

TEST_CASE("doctor: checks the files that the configuration names") {
    const TlsFolder tls;
    const MadeUpMachine machine;
    const auto about_key = [&](const Diagnoses& all) {
        return std::any_of(all.begin(), all.end(), [&](const Diagnosis& each) {
            return each.what == tls.file("server-key.pem");
        });
    };
    CHECK(check_configuration(machine, {}).empty());
    const std::string text =
        "exports: [{size: 1M, devices: [host]}]\ntls: {mode: required, certificates: '" +
        tls.path("tls") + "'}\n";
    machine.put(packaged_configuration, text);
    CHECK(about_key(check_configuration(machine, {})));
    CHECK(about_key(diagnose("remote", machine)));
    CHECK(about_key(diagnose("", machine)));
    CHECK(!about_key(diagnose("swap", machine)));
    CHECK(about_key(diagnose("remote", MadeUpMachine(), machine.root() + packaged_configuration)));
    machine.put(packaged_configuration, "exports: 1");
    CHECK(of(check_configuration(machine, {}), "configuration").verdict == Verdict::fail);
    CHECK(of(check_configuration(machine, "/no/such"), "configuration").verdict == Verdict::fail);
}

TEST_CASE("doctor: checks the origins that the configuration names") {
    const gpunbd::test::TemporaryFolder folder;
    const MadeUpMachine machine;
    std::string origin = folder.path("image");
    std::string spill = folder.path("spill");
    std::string mode = "read-only";
    std::string keep = "false";
    const auto look_at_all = [&](const char* topic) {
        folder.write("yaml", "exports: [{name: disk, devices: ['cuda:0'], keep: " + keep +
                                 ", origin: {file: " + origin + ", mode: " + mode +
                                 "}}]\ndevices: [{id: 'cuda:0', spill: [{host: 1G}, {file: " +
                                 spill + ", size: 1G}]}]\n");
        return check_configuration(machine, folder.path("yaml"), topic);
    };
    const auto look = [&](const char* topic, const char* what) {
        return of(look_at_all(topic), what);
    };
    constexpr const char* disk = "disk of the origin of 'disk'";
    CHECK(look("keep", disk).verdict == Verdict::warn);  // neither file exists
    CHECK(look("", disk).is == origin + " is on one file system with " + spill +
                                   ", to which cuda:0 spills, so each slows the other down");
    CHECK(!std::filesystem::exists(origin));
    folder.write("image", "");
    CHECK(look("keep", disk).verdict == Verdict::warn);
    spill = "/proc/spill";
    CHECK(look("keep", disk).verdict == Verdict::ok);
    origin = "/no/such/folder/image";
    mode = "write-back";
    constexpr const char* write_back = "write-back of 'disk'";
    CHECK(look("keep", write_back).verdict == Verdict::warn);
    CHECK(contains(look("keep", write_back).is, "changes of up to 30 s"));
    machine.put("/run/systemd/system/a", "");
    CHECK(look("keep", write_back).verdict == Verdict::ok);
    CHECK(look_at_all("keep").size() == 1);
    CHECK(look_at_all("remote").empty());
    keep = "true";
    CHECK(look_at_all("keep").empty());
}

TEST_CASE("doctor: a GPU") {
    MadeUpMachine machine;
    CHECK(of(check_device_drivers(machine), "GPU").verdict == Verdict::warn);
    const std::string card = "/sys/bus/pci/devices/0000:65:00.0/";
    machine.put(card + "vendor", "0x10de");
    machine.put(card + "class", "0x030200");
    machine.put(card + "numa_node", "1");
    const std::string first = "0x00000000a3000000 0x00000000a3ffffff 0x0000000000040200\n";
    machine.put(card + "resource",
                first + "0x0000000090000000 0x000000009fffffff 0x000000000014220c");
    Diagnoses found = check_device_drivers(machine);
    CHECK(of(found, "NVIDIA driver").verdict == Verdict::fail);
    CHECK(!of(found, "NVIDIA driver").remedy.empty());
    CHECK(of(found, "persistence mode").verdict == Verdict::warn);
    CHECK(of(found, "memory of 0000:65:00.0 that the CPU sees").is == "256 MiB");
    CHECK(of(found, "memory of 0000:65:00.0 that the CPU sees").verdict == Verdict::warn);
    CHECK(of(found, "NUMA node of 0000:65:00.0").is == "1");
    machine.put(card + "numa_node", "-1");
    CHECK(of(check_device_drivers(machine), "NUMA node of 0000:65:00.0").verdict == Verdict::ok);
    machine.put("/sys/devices/system/node/node1/cpulist", "8-15");
    CHECK(of(check_device_drivers(machine), "NUMA node of 0000:65:00.0").verdict == Verdict::warn);
    machine.line_ = "Disabled";
    CHECK(of(check_device_drivers(machine), "persistence mode").verdict == Verdict::warn);
    machine.line_ = "Enabled";
    CHECK(of(check_device_drivers(machine), "persistence mode").verdict == Verdict::ok);
    machine.line_.reset();
    machine.put(card + "resource",
                first + "0x0000202000000000 0x0000203fffffffff 0x000000000014220c");
    machine.put("/proc/driver/nvidia/version", "NVRM version: 550.54\nGCC version: 12");
    machine.put("/run/nvidia-persistenced/socket", "");
    found = check_device_drivers(machine);
    CHECK(of(found, "NVIDIA driver").is == "NVRM version: 550.54");
    CHECK(of(found, "persistence mode").verdict == Verdict::ok);
    CHECK(of(found, "memory of 0000:65:00.0 that the CPU sees").is == "128 GiB");
    // In a virtual machine (H200) the registers take up two entries.
    machine.put(card + "resource",
                first + "0x0 0x0 0x0\n0x0000202000000000 0x0000205fffffffff 0x000000000014220c");
    CHECK(of(check_device_drivers(machine), "memory of 0000:65:00.0 that the CPU sees").is ==
          "256 GiB");
    machine.put(card + "resource", first + "0x00");
    CHECK(of(check_device_drivers(machine), "memory of 0000:65:00.0 that the CPU sees").verdict ==
          Verdict::warn);
}

TEST_CASE("doctor: a GPU whose memory the CPU can address, and one without") {
    storage::DeviceInfo gpu;
    gpu.id = "cuda:1";
    gpu.access = "mapped: writes are received into GPU memory";
    CHECK(storage::cuda::check_mapping(gpu).verdict == Verdict::ok);
    CHECK(storage::cuda::check_mapping(gpu).what == "mapping of cuda:1");
    gpu.access = "not mapped (there is no libvulkan.so.1): by kernels and copy engines";
    CHECK(storage::cuda::check_mapping(gpu).verdict == Verdict::warn);
    CHECK(storage::cuda::check_mapping(gpu).is == gpu.access);
}

TEST_CASE("doctor: checks that contents can outlive the server") {
    MadeUpMachine machine;
    CHECK(contains(of(check_keep(machine), "supervisor").is, "gpunbd keep"));
    machine.line_ = "systemd 252 (252.39-1~deb12u1)";  // installed, but not running
    CHECK(contains(of(check_keep(machine), "supervisor").is, "gpunbd keep"));
    machine.put("/run/systemd/system/a", "");
    CHECK(of(check_keep(machine), "supervisor").is.starts_with("systemd 252: contents outlive"));
    machine.line_ = "systemd 219";
    CHECK(of(check_keep(machine), "supervisor").verdict == Verdict::fail);
    machine.line_ = "systemd of another kind";
    CHECK(of(check_keep(machine), "supervisor").verdict == Verdict::ok);
    machine.limit_ = 4096;
    CHECK(of(check_keep(machine), "descriptors").verdict == Verdict::warn);
    const std::string huge = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    machine.put(huge, "always within_size advise never [deny] force");
    CHECK(of(check_keep(machine), "huge pages").verdict == Verdict::warn);
    machine.put(huge, "always within_size advise [never] deny force");
    CHECK(of(check_keep(machine), "huge pages").verdict == Verdict::ok);
}

TEST_CASE("doctor: output as lines and as JSON") {
    const Diagnoses found{ok("one", "fine"), warn("two", "odd", "mend it"),
                          fail("three", "broken", "make it \"new\"")};
    CHECK(as_lines(found) ==
          "ok    one: fine\nwarn  two: odd; mend it\nfail  three: broken; make it \"new\"\n");
    const auto json = boost::json::parse(as_json(found));
    const auto& list = json.at("diagnoses").as_array();
    REQUIRE(list.size() == 3);
    CHECK(list[2].at("verdict").as_string() == "fail");
    CHECK(list[2].at("remedy").as_string() == "make it \"new\"");
}

TEST_CASE("doctor: a topic contains a part of all checks") {
    const MadeUpMachine machine;
    std::size_t parts = 0;
    for (const char* topic : {"swap", "remote", "gpu", "keep", "ublk"}) {
        const std::size_t count = diagnose(topic, machine).size();
        CHECK(count != 0);
        parts += count;
    }
    CHECK(diagnose("", machine).size() == parts);
}

}  // namespace
}  // namespace gpunbd::server::test
