#include "config/yaml_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <random>

#include "config/devices/device_drivers.hpp"
#include "tests/config/text.hpp"
#include "tests/temporary_folder.hpp"
#include "tests/test.hpp"
#include "tests/unprivileged_user.hpp"

namespace gpunbd::config {
namespace {

using namespace std::chrono_literals;

// The problems of a text, one per line.
std::string problems(const std::string& text) {
    const Loaded loaded = load_text(text, "f");
    if (!loaded.problems.empty()) CHECK(loaded.options == Options{});
    return joined(loaded.problems);
}

struct WrongFile {
    const char* name;
    const char* text;
    std::string problems;
};

void check(std::span<const WrongFile> rows) {
    for (const WrongFile& row : rows) {
        CAPTURE(row.name);
        CHECK(problems(row.text) == row.problems);
    }
}

const std::string root_keys =
    "listeners, tls, insecure, devices, exports, pipeline, threads, limits, keeping, admin, log, "
    "state, trace";
const std::string export_keys =
    "name, description, size, devices, layout, stripe_size, provision, page_size, clone_of, "
    "clone_per_client, origin, read_only, keep, swap, ublk, block_size, tls, access, "
    "max_connections, "
    "max_connections_per_peer, rates, rates_per_peer, save, restore";
const std::string log_keys = "level, format";

TEST_CASE("the minimal file has all defaults") {
    const Options options = options_of("exports: [{}]");
    Options expected;
    expected.tcp = default_listeners(10809);
    expected.exports = {ExportOptions{}};
    CHECK(options == expected);
    CHECK_FALSE(options.exports[0].size.has_value());
}

TEST_CASE("the example file has the expected values") {
    const Loaded loaded = load_file(GPUNBD_EXAMPLE);
    REQUIRE(joined(loaded.problems) == "");
    const Options& o = loaded.options;
    CHECK(o.tcp == std::vector<TcpListener>{{"127.0.0.1", 10809}, {"::1", 10809}});
    CHECK(o.unix_sockets == std::vector<UnixListener>{{"/run/gpunbd.sock", 0660, "root:disk"}});
    REQUIRE(o.devices.size() == 3);
    DeviceOptions gpu{"cuda:0", 2 * GiB, 64 * GiB, 32 * GiB, GpuUse::automatic};
    gpu.keep_free = 2 * GiB;
    gpu.reclaim_rate = 8 * GiB;
    gpu.spill = {{"host", 16 * GiB}, {"file:/var/lib/gpunbd/spill", 200 * GiB, true}};
    CHECK(o.devices[0] == gpu);
    CHECK(o.devices[1] ==
          DeviceOptions{"host", std::nullopt, 8 * GiB, std::nullopt, GpuUse::automatic});
    CHECK(o.devices[2].id == "pci:0000:01:00.0/2");
    CHECK_FALSE(o.devices[2].force);
    REQUIRE(o.exports.size() == 8);
    CHECK(o.exports[0].name == "scratch");
    CHECK(o.exports[0].description == "Scratch space in GPU memory");
    CHECK(o.exports[0].size == Size{.percent = 50});
    CHECK(o.exports[0].devices == std::vector<std::string>{"cuda:0"});
    CHECK(o.exports[1].layout == LayoutKind::stripe);
    CHECK(o.exports[1].stripe_size == 4 * MiB);
    CHECK(o.exports[1].provision == Provision::full);
    CHECK(o.exports[1].devices == std::vector<std::string>{"cuda:0", "host"});
    CHECK(o.exports[2].size == Size{.bytes = 1536 * MiB});
    CHECK(o.exports[2].read_only);
    CHECK(o.exports[3].clone_of == "image");
    CHECK(o.exports[4].clone_per_client ==
          CloneTemplate{"image", 8 * GiB, 200, 100, ClientId::address});
    CHECK(o.exports[5].origin ==
          OriginOptions{.file = "/srv/models.img", .device = {}, .cache = 40 * GiB});
    CHECK(o.exports[6].origin.path() == "/dev/sdb");
    CHECK(o.exports[7].origin.nbd == "nbd://storage.example.org/image");
    CHECK(o.admin.socket == "/run/gpunbd/admin.sock");
    CHECK(o.admin.tcp == AdminTcp{"127.0.0.1", 9809, "/etc/gpunbd/admin.token", true});
    CHECK(o.admin.hosts == std::vector<std::string>{"gpu.example.org"});
    CHECK(o.exports[2].tls_required);
    CHECK_FALSE(o.exports[0].tls_required);
    CHECK(o.tls == TlsOptions{TlsMode::optional, "/etc/gpunbd/tls", true, "/etc/gpunbd/keys.psk"});
    CHECK(o.pipeline == PipelineOptions{1 * MiB, 2, 16 * MiB});
    // The example shows the defaults.
    Limits limits;
    limits.connections_per_peer = limits.max_per_peer();
    limits.connections_reserved = limits.reserved();
    limits.handshakes = limits.max_handshakes();
    CHECK(o.limits == limits);
    CHECK(o.log == LogOptions{});
    CHECK(o.threads == 0);
    CHECK_FALSE(o.trace);
}

TEST_CASE("values have alternative spellings") {
    const Options o = options_of(R"(
listeners:
  tcp: [{address: '0.0.0.0', port: 1}, {address: "::", port: 65535}]
  unix: [{path: a, mode: "0660"}, {path: b, mode: 0o640}, {path: c, mode: 600}, {path: d, owner: 0:0}]
exports:
  - &base {name: "5", size: "50%", devices: []}
  - {name: 6, size: 1.5GiB, devices: [cuda:0, cuda:12, host], read_only: TRUE}
  - name: |-
      from a block
    description: "two\nlines"
limits: {handshake: 1, drain: 0s}
log: {level: error, format: json}
trace: true
)");
    CHECK(o.tcp == std::vector<TcpListener>{{"0.0.0.0", 1}, {"::", 65535}});
    CHECK(o.unix_sockets ==
          std::vector<UnixListener>{
              {"a", 0660, ""}, {"b", 0640, ""}, {"c", 0600, ""}, {"d", 0600, "0:0"}});
    CHECK(o.exports[0].name == "5");
    CHECK(o.exports[1].name == "6");
    CHECK(o.exports[1].devices == std::vector<std::string>{"cuda:0", "cuda:12", "host"});
    CHECK(o.exports[1].read_only);
    CHECK(o.exports[2].name == "from a block");
    CHECK(o.exports[2].description == "two\nlines");
    CHECK(o.limits.handshake == 1s);
    CHECK(o.limits.drain == 0s);
    CHECK(o.log == LogOptions{"error", LogFormat::json});
    CHECK(o.trace);
}

TEST_CASE("anchors and aliases are resolved") {
    const Options options =
        options_of("exports: [{name: a, devices: &d [host, cuda:0]}, {name: b, devices: *d}]");
    CHECK(options.exports[1].devices == std::vector<std::string>{"host", "cuda:0"});
}

TEST_CASE("listeners: the defaults apply only if the key is absent") {
    CHECK(options_of("exports: [{}]").tcp.size() == 2);
    CHECK(options_of("exports: [{}]\nlisteners: {tcp: []}").tcp.empty());
    const Options unix_only = options_of("exports: [{}]\nlisteners: {unix: [{path: a}]}");
    CHECK(unix_only.tcp.empty());
    CHECK(unix_only.unix_sockets.size() == 1);
}

TEST_CASE("devices: mapped and gpu_use of GPUs are read and written") {
    const Options options = options_of(
        "exports: [{}]\n"
        "devices: [{id: cuda:0}, {id: cuda:1, mapped: 0, gpu_use: copy-engines}, {id: host}]");
    const auto& devices = options.devices;
    CHECK(devices[0] ==
          DeviceOptions{"cuda:0", std::nullopt, std::nullopt, std::nullopt, GpuUse::automatic});
    CHECK(devices[1] ==
          DeviceOptions{"cuda:1", std::nullopt, std::nullopt, 0, GpuUse::copy_engines});
    // Settings of GPUs are not written for the host, because reading them would fail.
    check_written(options);
}

TEST_CASE("devices: spill memory is read and written") {
    const Options options = options_of(
        "exports: [{}]\n"
        "devices:\n"
        "  - id: cuda:0\n"
        "    keep_free: 2G\n"
        "    spill: [{host: 64G}, {cuda:1: 20G}, {file: /var/s, size: 200G, encrypt: false}]\n");
    const DeviceOptions& device = options.devices[0];
    CHECK(device.keep_free == 2 * GiB);
    CHECK(device.spill == std::vector<SpillOptions>{{"host", 64 * GiB},
                                                    {"cuda:1", 20 * GiB},
                                                    {"file:/var/s", 200 * GiB, false}});
    check_written(options);
}

TEST_CASE("devices: wrong spill memory is a problem") {
    const auto spill = [](const std::string& text) {
        return problems("exports: [{}]\ndevices: [{id: host, " + text + "}]\n");
    };
    const std::pair<const char*, const char*> rows[] = {
        {"keep_free: 1G",
         "f:2:33: devices[0].keep_free: needs a place for the pages; add for example spill: "
         "[{host: 64G}]\n"},
        {"reclaim_rate: 1G",
         "f:2:36: devices[0].reclaim_rate: has no effect without spill; add it, or leave "
         "reclaim_rate out\n"},
        {"spill: [{host: 1G}]",
         "f:2:29: devices[0].spill: host cannot take its own pages; name another device, or a "
         "file\n"},
        {"spill: [{}]",
         "f:2:30: devices[0].spill[0].host: is missing; write for example host: 64G\n"},
        {"spill: [{cuda:0: 1}]",
         "f:2:39: devices[0].spill[0].cuda:0: '1' is out of range; write 64K to 4194304T\n"},
        {"spill: [{cuda:0: 1G, cuda:1: 1G}]",
         "f:2:51: devices[0].spill[0].cuda:1: is a second device; begin the item of each device "
         "with '- '\n"},
        {"spill: [{cuda:N: 1G}]",
         "f:2:39: devices[0].spill[0].cuda:N: 'cuda:N' is not a device; write host"},
        {"spill: [{cuda:0: 1G, size: 1G}]",
         "f:2:49: devices[0].spill[0].size: is for files; leave it out\n"},
        {"spill: [{file: /a}]",
         "f:2:30: devices[0].spill[0].size: is missing; write for example size: 200G\n"},
        {"spill: [{file: a, size: 1G}]",
         "f:2:37: devices[0].spill[0].file: 'file:a' is not a device; write"},
        {"spill: [{disk: 1G}]", "f:2:31: devices[0].spill[0].disk: unknown key; known here are"},
        {"spill: [{cuda:0: 1G}, {cuda:0: 2G}]", "'cuda:0' is already in line 2; give each once"},
        {"spill: [host]", "f:2:30: devices[0].spill[0]: expected a mapping"},
    };
    for (const auto& [text, expected] : rows) {
        const std::string problem = spill(text);
        CAPTURE(problem);
        CHECK(contains(problem, expected));
    }
    CHECK(contains(problems("exports: [{devices: ['file:/a']}]\n"),
                   "can only take the pages of another"));
}

TEST_CASE("devices: ids of PCI BARs are normalised") {
    const Options options = options_of(
        "exports: [{devices: ['pci:0A:00.0/2']}]\n"
        "devices: [{id: 'pci:0000:0a:00.0/2', force: true, capacity: 64M}, "
        "{id: 'pci:0a:00.0/0'}]");
    CHECK(options.exports[0].devices == std::vector<std::string>{"pci:0000:0a:00.0/2"});
    CHECK(options.devices[0].id == "pci:0000:0a:00.0/2");
    CHECK(options.devices[0].force);
    CHECK(options.devices[1].id == "pci:0000:0a:00.0/0");
    CHECK_FALSE(options.devices[1].force);
    check_written(options);

    CHECK(problems("exports: [{devices: ['pci:0a:00.0/2', 'pci:0000:0A:00.0/2']}]\n") ==
          "f:1:39: exports[0].devices[1]: 'pci:0000:0a:00.0/2' is already in line 1; give each "
          "once\n");
    for (const char* id :
         {"pci:", "pci:0000:0a:00.0", "pci:0a:00.0/6", "pci:0a:00.0/", "pci:0a:00.0/22",
          "pci:a:00.0/2", "pci:0a:00.8/2", "pci:000:0a:00.0/2", "pci:0000:0a:00/2",
          "pci:../0a:00.0/2", "pci:0g:00.0/2", "pci:0000:0000:0a:00.0/2", "pci:0a:00.0/2/"}) {
        CAPTURE(id);
        const std::string text = std::string("exports: [{devices: ['") + id + "']}]\n";
        CHECK(contains(problems(text), "is not a device; write pci:, the card's address"));
    }
}

TEST_CASE("devices: messages describe the devices of all drivers that exports can use") {
    std::vector<DriverInfo> before = device_drivers();
    set_device_drivers({{.scheme = "disk", .form = "disk", .description = "disk"},
                        {.form = "gpu:N", .description = "gpu:N with a number"},
                        {.form = "card", .description = "card"},
                        {.scheme = "tape", .form = "tape:N", .spill_only = true}});
    CHECK(is_spill_only("tape:0"));
    CHECK_FALSE(is_spill_only("disk"));
    CHECK_FALSE(is_spill_only("other:0"));
    CHECK(device_forms() == "disk, gpu:N, card");
    CHECK(device_descriptions() == "disk, gpu:N with a number, or card");
    set_device_drivers(std::move(before));
}

TEST_CASE("unknown and duplicate keys are problems") {
    const WrongFile rows[] = {
        {"similar to a known key", "exports: [{}]\nthread: 2\n",
         "f:2:1: thread: unknown key; did you mean threads?\n"},
        {"near a known one, below", "exports:\n  - name: a\n    pagesize: 2M\n",
         "f:3:5: exports[0].pagesize: unknown key; did you mean page_size?\n"},
        {"other spelling", "exports:\n  - read-only: true\n",
         "f:2:5: exports[0].read-only: unknown key; did you mean read_only?\n"},
        {"similar to no key", "exports: [{}]\nlog: {colour: red}\n",
         "f:2:7: log.colour: unknown key; known here are " + log_keys + "\n"},
        {"merge", "x: &x {name: a}\nexports: [{<<: *x}]\n",
         "f:1:1: x: unknown key; known here are " + root_keys +
             "\nf:2:12: exports[0].<<: unknown key; known here are " + export_keys + "\n"},
        {"twice", "exports: [{}]\nthreads: 1\nthreads: 2\n",
         "f:3:1: threads: is given twice, first in line 2; keep one\n"},
        {"twice, below", "exports:\n  - size: 1G\n    name: a\n    size: 2G\n",
         "f:4:5: exports[0].size: is given twice, first in line 2; keep one\n"},
        {"not text", "exports: [{}]\n[a]: 1\n",
         "f:2:1: expected a key, found a list; known here are " + root_keys + "\n"},
        {"null", "exports: [{}]\nlog: {~: 1}\n",
         "f:2:6: log: expected a key, found nothing; known here are " + log_keys + "\n"},
        {"odd characters", "exports: [{}]\n\"a\\e\": 1\n",
         "f:2:1: a\\x1b: unknown key; known here are " + root_keys + "\n"},
        {"columns count characters", "exports: [{description: \"\xc3\xa4\xe2\x82\xac\", nam: b}]\n",
         "f:1:31: exports[0].nam: unknown key; did you mean name?\n"},
    };
    check(rows);
}

TEST_CASE("values of a wrong type are problems") {
    const WrongFile rows[] = {
        {"root", "- a\n",
         "f:1:1: expected a mapping, found a list; its keys are " + root_keys + "\n"},
        {"root text", "gpunbd\n",
         "f:1:1: expected a mapping, found the text 'gpunbd'; its keys are " + root_keys + "\n"},
        {"no exports", "threads: 1\n",
         "f:1:1: exports: is missing; write for example exports: [{name: vram, size: 8G}]\n"},
        {"nothing", "",
         "f:1:1: exports: is missing, the file is empty; write for example exports: [{name: vram, "
         "size: 8G}]\n"},
        {"a comment", "# nothing\n",
         "f:1:1: exports: is missing, the file is empty; write for example exports: [{name: vram, "
         "size: 8G}]\n"},
        {"empty list", "threads: 1\nexports: []\n",
         "f:2:10: exports: is empty; give at least one export\n"},
        {"null list", "exports:\nthreads: 1\n",
         "f:1:1: exports: expected a list, found nothing; write [a, b], or lines that start with "
         "'- '\n"},
        {"map for list", "exports:\n  name: a\n",
         "f:2:3: exports: expected a list, found a mapping; write [a, b], or lines that start with "
         "'- '\n"},
        {"text for list", "exports: [{devices: cuda:0}]\n",
         "f:1:21: exports[0].devices: expected a list, found the text 'cuda:0'; write [a, b], or "
         "lines that start with '- '\n"},
        {"text for mapping", "exports: [{}]\nlog: debug\n",
         "f:2:6: log: expected a mapping, found the text 'debug'; its keys are " + log_keys + "\n"},
        {"null for mapping", "exports: [{}]\nlog:\n",
         "f:2:1: log: expected a mapping, found nothing; its keys are " + log_keys + "\n"},
        {"null item", "exports:\n  - name: a\n  -\n",
         "f:2:3: exports[1]: expected a mapping, found nothing; its keys are " + export_keys +
             "\n"},
        {"list for text", "exports:\n  - name: [a]\n",
         "f:2:11: exports[0].name: expected a single value, found a list; write it without "
         "brackets or '- '\n"},
        {"null for text", "exports:\n  - name:\n    size: 1G\n",
         "f:2:5: exports[0].name: has no value; give it one, or leave the key out\n"},
        {"text for integer", "exports: [{}]\nthreads: many\n",
         "f:2:10: threads: 'many' is not a whole number; write one from 0 to 1024, in decimal\n"},
        {"quoted integer", "exports: [{}]\nthreads: \"2\"\n",
         "f:2:10: threads: '2' is quoted or tagged, so it is text; write it without quotes or "
         "tag\n"},
        {"tagged integer", "exports: [{}]\nthreads: !!str 2\n",
         "f:2:10: threads: '2' is quoted or tagged, so it is text; write it without quotes or "
         "tag\n"},
        {"octal integer", "exports: [{}]\nthreads: 010\n",
         "f:2:10: threads: '010' is not a whole number; write one from 0 to 1024, in decimal\n"},
        {"fraction", "exports: [{}]\nthreads: 1.5\n",
         "f:2:10: threads: '1.5' is not a whole number; write one from 0 to 1024, in decimal\n"},
        {"boolean", "exports: [{read_only: yes}]\n",
         "f:1:23: exports[0].read_only: 'yes' is neither true nor false; write true\n"},
        {"boolean as a number", "exports: [{}]\ntrace: 1\n",
         "f:2:8: trace: '1' is neither true nor false; write true\n"},
    };
    check(rows);
}

TEST_CASE("numbers and times out of range are problems") {
    const std::tuple<const char*, const char*, const char*> numbers[] = {
        {"threads: 1025", "f:2:10: threads: '1025'", "0 to 1024"},
        {"threads: -1", "f:2:10: threads: '-1'", "0 to 1024"},
        {"threads: 99999999999999999999", "f:2:10: threads: '99999999999999999999'", "0 to 1024"},
        {"listeners: {tcp: [{address: ::1, port: 65536}]}",
         "f:2:40: listeners.tcp[0].port: '65536'", "1 to 65535"},
        {"pipeline: {slots: 9}", "f:2:19: pipeline.slots: '9'", "1 to 8"},
        {"limits: {connections: 0}", "f:2:23: limits.connections: '0'", "1 to 1000000"},
        {"limits: {connections_reserved: -1}", "f:2:32: limits.connections_reserved: '-1'",
         "0 to 999999"},
        {"limits: {handshakes: 0}", "f:2:22: limits.handshakes: '0'", "1 to 1000000"},
    };
    for (const auto& [text, what, range] : numbers) {
        CHECK(problems(std::string("exports: [{}]\n") + text) ==
              std::string(what) + " is out of range; write a whole number from " + range + "\n");
    }
    const std::tuple<const char*, const char*, const char*> times[] = {
        {"limits: {handshake: 0}", "f:2:21: limits.handshake: '0'", "1 to 3600"},
        {"limits: {drain: 500ms}", "f:2:17: limits.drain: '500ms'", "0 to 3600"},
        {"limits: {idle: 1w}", "f:2:16: limits.idle: '1w'", "0 to 604800"},
    };
    for (const auto& [text, what, range] : times) {
        CHECK(problems(std::string("exports: [{}]\n") + text) ==
              std::string(what) + " is not a time; write whole seconds from " + range +
                  ", for example 10 or 10s\n");
    }
}

TEST_CASE("values out of range are problems") {
    const WrongFile rows[] = {
        {"port 0", "exports: [{}]\nlisteners: {tcp: [{address: ::1, port: 0}]}\n",
         "f:2:40: listeners.tcp[0].port: '0' means any free port, which clients cannot know; write "
         "a whole number from 1 to 65535\n"},
        {"mode", "exports: [{}]\nlisteners: {unix: [{path: a, mode: 0888}]}\n",
         "f:2:36: listeners.unix[0].mode: '0888' is not a mode; write octal digits from 0000 to "
         "0777, for example 0660\n"},
        {"mode bits", "exports: [{}]\nlisteners: {unix: [{path: a, mode: 1777}]}\n",
         "f:2:36: listeners.unix[0].mode: '1777' is not a mode; write octal digits from 0000 to "
         "0777, for example 0660\n"},
        {"page size", "exports: [{page_size: 2000}]\n",
         "f:1:23: exports[0].page_size: '2000' is out of range; write 64K to 64M\n"},
        {"page size, power", "exports: [{page_size: 3M}]\n",
         "f:1:23: exports[0].page_size: '3M' is not a power of two; use for example 2M\n"},
        {"page size, share", "exports: [{page_size: 10%}]\n",
         "f:1:23: exports[0].page_size: '10%' is a share, which only the size of an export can be; "
         "write bytes, for example 64M\n"},
        {"size 0", "exports: [{size: 0}]\n",
         "f:1:18: exports[0].size: '0' leaves nothing to export; write for example 8G or 50%\n"},
        {"size, sectors", "exports: [{size: 1000}]\n",
         "f:1:18: exports[0].size: '1000' is not a multiple of 512 bytes; use for example 512, or "
         "1000M with a unit\n"},
        {"size, offsets", "exports: [{size: 4194305T}]\n",
         "f:1:18: exports[0].size: '4194305T' is out of range; an export has at most 4194304T\n"},
        {"chunk size", "exports: [{}]\npipeline: {chunk_size: 32M}\n",
         "f:2:24: pipeline.chunk_size: '32M' is out of range; write 64K to 16M\n"},
        {"chunk size, power", "exports: [{}]\npipeline: {chunk_size: 1000K}\n",
         "f:2:24: pipeline.chunk_size: '1000K' is not a power of two; use for example 512K\n"},
        {"pinned", "exports: [{}]\npipeline: {pinned: 24M}\n",
         "f:2:20: pipeline.pinned: '24M' is not a power of two; use for example 16M\n"},
        {"connections per peer", "exports: [{}]\nlimits: {connections_per_peer: many}\n",
         "f:2:32: limits.connections_per_peer: 'many' is not a whole number; write one from 1 to "
         "1000000, in decimal\n"},
        {"in flight", "exports: [{}]\nlimits: {in_flight_per_connection: 1M}\n",
         "f:2:36: limits.in_flight_per_connection: '1M' is out of range; write 32M to 1T\n"},
        {"capacity", "exports: [{}]\ndevices: [{id: host, capacity: 0}]\n",
         "f:2:32: devices[0].capacity: '0' is out of range; write 64K to 4194304T\n"},
        {"mapped", "exports: [{}]\ndevices: [{id: cuda:0, mapped: -1}]\n",
         "f:2:32: devices[0].mapped: '-1' is negative; write for example 8G\n"},
        {"mapped, offsets", "exports: [{}]\ndevices: [{id: cuda:0, mapped: 4194305T}]\n",
         "f:2:32: devices[0].mapped: '4194305T' is out of range; write 0 to 4194304T\n"},
        {"gpu_use", "exports: [{}]\ndevices: [{id: cuda:0, gpu_use: maybe}]\n",
         "f:2:33: devices[0].gpu_use: 'maybe' is none of auto, copy-engines or all\n"},
        {"a GPU's keys of the host", "exports: [{}]\ndevices: [{id: host, mapped: 1G}]\n",
         "f:2:30: devices[0].mapped: is for GPUs, whose memory the CPU cannot address directly; "
         "leave it out\n"},
        {"and the other", "exports: [{}]\ndevices: [{gpu_use: all, id: host}]\n",
         "f:2:21: devices[0].gpu_use: is for GPUs, whose memory the CPU cannot address directly; "
         "leave it out\n"},
        {"of a BAR", "exports: [{}]\ndevices: [{id: 'pci:01:00.0/2', mapped: 1G}]\n",
         "f:2:41: devices[0].mapped: is for GPUs, whose memory the CPU cannot address directly; "
         "leave it out\n"},
        {"revocable, not of NVIDIA", "exports: [{}]\ndevices: [{id: host, revocable: 1G}]\n",
         "f:2:33: devices[0].revocable: is for NVIDIA GPUs; leave it out\n"},
        {"of an id that is none", "exports: [{}]\ndevices: [{id: 'pci:1', mapped: 1G}]\n",
         "f:2:16: devices[0].id: 'pci:1' is not a device; write pci:, the card's address, and the "
         "number of its BAR, 0 to 5, for example pci:0000:01:00.0/2 ('gpunbd devices' lists "
         "them)\n"},
        {"a BAR's key for a GPU", "exports: [{}]\ndevices: [{id: cuda:0, force: true}]\n",
         "f:2:31: devices[0].force: is for memory of PCI cards (pci:), which others may use; leave "
         "it out\n"},
    };
    check(rows);
}

TEST_CASE("invalid words, addresses, ids and texts are problems") {
    const std::string long_path(108, 'p');
    const std::string long_name(4097, 'n');
    const WrongFile rows[] = {
        {"layout", "exports: [{layout: striped}]\n",
         "f:1:20: exports[0].layout: 'striped' is none of linear or stripe; did you mean "
         "stripe?\n"},
        {"provision", "exports: [{provision: thick}]\n",
         "f:1:23: exports[0].provision: 'thick' is none of thin or full; did you mean thin?\n"},
        {"level", "exports: [{}]\nlog: {level: warning}\n",
         "f:2:14: log.level: 'warning' is none of trace, debug, info, warn or error; did you mean "
         "warn?\n"},
        {"format", "exports: [{}]\nlog: {format: xml}\n",
         "f:2:15: log.format: 'xml' is none of text or json\n"},
        {"address with a NUL", "exports: [{}]\nlisteners: {tcp: [{address: \"::1\\0\"}]}\n",
         "f:2:29: listeners.tcp[0].address: '::1\\x00' is not a numeric IPv4 or IPv6 address; "
         "write for example 127.0.0.1, ::1, or 0.0.0.0 for every IPv4 address\n"},
        {"no address", "exports: [{}]\nlisteners: {tcp: [{port: 1}]}\n",
         "f:2:19: listeners.tcp[0].address: is missing; write for example 127.0.0.1\n"},
        {"no path", "exports: [{}]\nlisteners: {unix: [{mode: 0600}]}\n",
         "f:2:20: listeners.unix[0].path: is missing; write for example /run/gpunbd.sock\n"},
        {"empty path", "exports: [{}]\nlisteners: {unix: [{path: ''}]}\n",
         "f:2:27: listeners.unix[0].path: the path is empty; write for example /run/gpunbd.sock\n"},
        {"NUL in path", "exports: [{}]\nlisteners: {unix: [{path: \"a\\0b\"}]}\n",
         "f:2:27: listeners.unix[0].path: 'a\\x00b' holds a control character; write for example "
         "/run/gpunbd.sock\n"},
        {"owner", "exports: [{}]\nlisteners: {unix: [{path: a, owner: 'a:b:c'}]}\n",
         "f:2:37: listeners.unix[0].owner: 'a:b:c' is not an owner; write user or user:group, for "
         "example root:disk\n"},
        {"device auto", "exports: [{devices: [auto]}]\n",
         "f:1:22: exports[0].devices[0]: 'auto' is not a device; write no device at all to leave "
         "the choice to gpunbd ('gpunbd devices' lists them)\n"},
        {"no id", "exports: [{}]\ndevices: [{reserve: 1G}]\n",
         "f:2:11: devices[0].id: is missing; write for example cuda:0\n"},
        {"name", "exports: [{name: \"a\\tb\"}]\n",
         "f:1:18: exports[0].name: 'a\\tb' holds a control character; use printable text\n"},
    };
    check(rows);
    CHECK(problems("exports: [{}]\nlisteners: {unix: [{path: " + long_path + "}]}\n")
              .starts_with("f:2:27: listeners.unix[0].path: 'ppp"));
    CHECK(problems("exports: [{name: " + long_name + "}]\n") ==
          "f:1:18: exports[0].name: the name has 4097 bytes; NBD allows 4096 at most\n");
}

TEST_CASE("contradicting settings are problems") {
    const WrongFile rows[] = {
        {"stripe size and page size",
         "exports: [{layout: stripe, page_size: 4M, stripe_size: 6M}]\n",
         "f:1:56: exports[0].stripe_size: 6M is not a multiple of page_size (4M); use for example "
         "8M\n"},
        {"stripe size and the default page size", "exports: [{layout: stripe, stripe_size: 1M}]\n",
         "f:1:41: exports[0].stripe_size: 1M is not a multiple of page_size (2M); use for example "
         "2M\n"},
        {"stripe size and linear", "exports: [{stripe_size: 4M}]\n",
         "f:1:25: exports[0].stripe_size: 4M has no effect with layout: linear; use layout: "
         "stripe, or leave it out\n"},
        {"same name", "exports:\n  - name: a\n  - name: b\n  - name: a\n",
         "f:4:11: exports[2].name: the name 'a' is already in line 2; give each once\n"},
        {"same default name", "exports:\n  - size: 1G\n  - size: 2G\n",
         "f:3:5: exports[1].name: the name '' (none given) is already in line 2; give each once\n"},
        {"same alias", "exports: [&a {name: x}, *a]\n",
         "f:1:21: exports[1].name: the name 'x' is already in line 1; give each once\n"},
        {"same device", "exports: [{}]\ndevices:\n  - id: host\n  - id: cuda:0\n  - id: host\n",
         "f:5:9: devices[2].id: 'host' is already in line 3; give each once\n"},
        {"same device of an export", "exports: [{devices: [cuda:0, cuda:0]}]\n",
         "f:1:30: exports[0].devices[1]: 'cuda:0' is already in line 1; give each once\n"},
        {"same address, spelled differently",
         "exports: [{}]\nlisteners:\n  tcp:\n    - {address: ::1}\n    - {address: '0:0::1', port: "
         "10809}\n",
         "f:5:7: listeners.tcp[1]: 0:0::1 port 10809 is already in line 4; give each once\n"},
        {"same address, other port",
         "exports: [{}]\nlisteners: {tcp: [{address: ::1, port: 1}, {address: ::1, port: 2}]}\n",
         ""},
        {"same path", "exports: [{}]\nlisteners: {unix: [{path: a}, {path: a}]}\n",
         "f:2:38: listeners.unix[1].path: 'a' is already in line 2; give each once\n"},
        {"chunks and pinned", "exports: [{}]\npipeline: {chunk_size: 8M, slots: 2, pinned: 16M}\n",
         "f:2:46: pipeline.pinned: 16M is less than two transfers need, with 2 chunks of 8M each; "
         "use at least 32M\n"},
        {"per peer", "exports: [{}]\nlimits: {connections: 5, connections_per_peer: 6}\n",
         "f:2:48: limits.connections_per_peer: 6 is more than connections (5); use at most that\n"},
        {"reserved", "exports: [{}]\nlimits: {connections: 5, connections_reserved: 5}\n",
         "f:2:48: limits.connections_reserved: 5 leaves none of the 5 connections; use less\n"},
        {"in flight", "exports: [{}]\nlimits: {in_flight_per_connection: 64M, in_flight: 32M}\n",
         "f:2:52: limits.in_flight: in_flight (32M) is less than in_flight_per_connection (64M); "
         "use at least that\n"},
        {"in flight, default", "exports: [{}]\nlimits: {in_flight_per_connection: 2G}\n",
         "f:2:36: limits.in_flight_per_connection: in_flight (1G) is less than "
         "in_flight_per_connection (2G); use at least that\n"},
        {"swap and TLS", "exports: [{}, {name: a, swap: true}]\ntls: {psk: /k, mode: optional}\n",
         "f:2:6: tls: TLS and an export with swap exclude each other: the kernel's client passes "
         "TLS through a process, which waits for memory when the kernel waits for it; leave one of "
         "the two out, or serve them by two servers\n"},
        {"swap and idle", "exports: [{swap: true}]\nlimits: {idle: 1}\n",
         "f:2:9: limits: idle and an export with swap exclude each other: a machine may not swap "
         "for hours, and loses swapped-out memory if its connection is closed; leave idle out\n"},
        {"ublk: the same id twice",
         "exports:\n- {name: a, ublk: {id: 3}}\n- {name: b, ublk: {id: 3}}\n",
         "f:3:19: exports[1].ublk: export 'a' has the id 3 already; use another one\n"},
        {"two exports save to the same file",
         "exports:\n- {name: a, save: {path: /d/a, every: 1}}\n"
         "- {name: b, save: {path: /d//./a, every: 1}}\n",
         "f:3:19: exports[1].save: export 'a' saves to this file already; use another one\n"},
        {"an export saves to a spill file",
         "exports: [{name: a, devices: [host], save: {path: /s, every: 1}}]\n"
         "devices: [{id: host, spill: [{file: /s, size: 1G}]}]\n",
         "f:1:44: exports[0].save: host spills to this file already; use another one\n"},
        {"two exports save to files of their own",
         "exports: [{save: {path: a, every: 1}}, {name: b, save: {path: b, every: 1}}]\n", ""},
        {"revocable and keep",
         "exports: [{devices: [cuda:0]}, {name: a, devices: [cuda:1], keep: true}]\n"
         "devices: [{id: cuda:0, revocable: 1G}, {id: cuda:1, revocable: 2G}]\n",
         "f:2:64: devices[1].revocable: revocable memory and keep of the export 'a' exclude each "
         "other: memory that outlives the server cannot be revocable; leave one of the two out, or "
         "use another device for the export\n"},
        {"the same file takes the pages of two devices",
         "exports: [{devices: [host]}]\ndevices:\n- {id: cuda:0, spill: [{file: /s, size: 1G}]}\n"
         "- {id: host, spill: [{file: /s, size: 2G}]}\n",
         "f:4:21: devices[1].spill: 'file:/s' takes the pages of cuda:0 already; name another "
         "file\n"},
        {"revocable and swap on the device that the server chooses",
         "exports: [{name: a, swap: true}]\ndevices: [{id: cuda:0, revocable: 1G}]\n",
         "f:2:35: devices[0].revocable: revocable memory and swap of the export 'a' exclude each "
         "other: the driver needs host memory to move it, which the machine lacks when it swaps; "
         "leave one of the two out, or use another device for the export\n"},
    };
    check(rows);
}

TEST_CASE("swap: the default of provision is full") {
    const Options options = options_of(
        "exports: [{swap: true}, {name: a, swap: true, provision: thin}, {name: b, swap: false}]");
    CHECK(options.any_swap());
    CHECK(options.exports[0].provision == Provision::full);
    CHECK(options.exports[1].provision == Provision::thin);
    CHECK(options.exports[2].provision == Provision::thin);
    CHECK_FALSE(load_text("exports: [{}]", "f").options.any_swap());
}

TEST_CASE("the default of pinned grows with the chunk size") {
    const Options options = options_of("exports: [{}]\npipeline: {chunk_size: 16M, slots: 3}");
    CHECK(options.pipeline.pinned == 128 * MiB);
}

TEST_CASE("invalid YAML is one problem with its position") {
    const WrongFile rows[] = {
        {"open list", "exports: [{}]\ndevices: [\n",
         "f:3:1: YAML syntax: end of sequence flow not found; close '[' with ']', and separate its "
         "items by ','\n"},
        {"indentation", "exports:\n  - name: a\n   size: 1G\n",
         "f:3:4: YAML syntax: end of sequence not found; start the keys of a mapping, and the "
         "items of a list, in the same column\n"},
        {"a tab for an item", "exports:\n\t- name: a\n",
         "f:2:1: a tab cannot indent in YAML; use spaces\n"},
        {"a tab for a key", "log:\n\tlevel: info\nexports: [{}]\n",
         "f:2:1: a tab cannot indent in YAML; use spaces\n"},
        {"a tab after spaces", "exports:\n  - name: a\n  \tsize: 1G\n",
         "f:3:3: a tab cannot indent in YAML; use spaces\n"},
        {"a tab after a dash", "exports:\n  -\tname: a\n",
         "f:2:4: a tab cannot indent in YAML; use spaces\n"},
        {"a tab elsewhere is accepted", "exports:\n  - name: a\n    size:\t1G\n", ""},
        {"no space after a colon", "exports:\n  - size:1G\n",
         "f:2:5: exports[0]: expected a mapping, found the text 'size:1G'; write a space behind "
         "the ':'\n"},
        {"open mapping", "exports: [{name: a]\n",
         "f:1:19: YAML syntax: illegal flow end; close each '[' with ']' and each '{' with '}'\n"},
        {"no quotes", "exports: [{name: @a}]\n",
         "f:1:18: YAML syntax: unknown token; quote a text that begins with @, %, ` or a similar "
         "character\n"},
        {"an escape", "exports: [{name: \"a\\q\"}]\n",
         "f:1:22: YAML syntax: unknown escape character: q; write \\\\ for a backslash, or use "
         "single quotes\n"},
        {"a syntax error with the general remedy", "%YAML 2.0\n---\na\n",
         "f:1:1: YAML syntax: YAML major version too large; quote the text, or see "
         "gpunbd.yaml(5)\n"},
        {"unknown alias", "exports: *a\n",
         "f:1:10: YAML syntax: the referenced anchor is not defined; define it first with '&', or "
         "quote a text that begins with '*'\n"},
        {"alias of itself", "exports: &a [*a]\n",
         "f:1:14: the alias refers to a value that contains it; write the value out\n"},
        {"two documents", "exports: [{}]\n---\nexports: [{}]\n",
         "f:2:1: a second document starts here; write one document per file\n"},
        {"not UTF-8", "exports: [{}]\n# \xc3\xa4 \xe4\n",
         "f:2:5: the byte 0xe4 is not UTF-8; save the file as UTF-8\n"},
        {"UTF-16", "\xff\xfe", "f:1:1: the byte 0xff is not UTF-8; save the file as UTF-8\n"},
        {"a byte that ends the file for yaml-cpp", "exports: [{}]\n\x04threads: x\n",
         "f:2:1: the byte 0x04 is not allowed in YAML text; save the file as plain text\n"},
        {"carriage return alone", "exports: [{}]\rthreads: x",
         "f:1:14: the byte 0x0d is not allowed in YAML text; save the file as plain text\n"},
    };
    check(rows);
    CHECK(problems(std::string("a\0b", 3)) ==
          "f:1:2: the byte 0x00 is not allowed in YAML text; save the file as plain text\n");
    CHECK(contains(problems(std::string(100'000, '[')), "nested more than 16 deep"));
}

TEST_CASE("CRLF line ends and a byte order mark are accepted") {
    CHECK(problems("\xef\xbb\xbf"
                   "exports: [{}]\r\nthreads: 1\r\n") == "");
    CHECK(problems("\xef\xbb\xbf"
                   "exports: [{}]\r\nthreads: x\r\n")
              .starts_with("f:2:10: "));
}

TEST_CASE("all problems are reported in the order of the file, and no option is set") {
    const std::string devices = device_descriptions();
    CHECK(problems(R"(threads: lots
listeners:
  tcp:
    - {address: 127.0.0.1, port: 70000}
    - {address: here}
  unix: /run/x
exports:
  - name: a
    size: 8GB
    page_size: 3M
    stripe_size: 5M
  - name: a
    devices: [host, tpu:0]
    readonly: true
limit: {}
)") == "f:1:10: threads: 'lots' is not a whole number; write one from 0 to 1024, in decimal\n"
       "f:4:34: listeners.tcp[0].port: '70000' is out of range; write a whole number from 1 to "
       "65535\n"
       "f:5:17: listeners.tcp[1].address: 'here' is not a numeric IPv4 or IPv6 address; write "
       "for example 127.0.0.1, ::1, or 0.0.0.0 for every IPv4 address\n"
       "f:6:9: listeners.unix: expected a list, found the text '/run/x'; write [a, b], or lines "
       "that start with '- '\n"
       "f:9:11: exports[0].size: '8GB' has a decimal unit, and sizes are binary; write 8G or "
       "8GiB\n"
       "f:10:16: exports[0].page_size: '3M' is not a power of two; use for example 2M\n"
       "f:12:11: exports[1].name: the name 'a' is already in line 8; give each once\n"
       "f:13:21: exports[1].devices[1]: 'tpu:0' is not a device; write " +
              devices +
              " ('gpunbd devices' lists them)\n"
              "f:14:5: exports[1].readonly: unknown key; did you mean read_only?\n"
              "f:15:1: limit: unknown key; did you mean limits?\n");
}

TEST_CASE("the numbers of problems, exports and devices are limited") {
    std::string text = "exports:\n";
    for (int i = 0; i < 2000; ++i) text += "  - {name: a}\n";
    const Loaded many = load_text(text, "f");
    REQUIRE(many.problems.size() == 1001);
    CHECK(many.problems.back().text() == "f: too many problems; the rest is not shown");

    std::string devices = "exports: [{devices: [host";
    for (int i = 0; i < 64; ++i) devices += ", cuda:" + std::to_string(i);
    CHECK(problems(devices + "]}]") ==
          "f:1:21: exports[0].devices: has 65 items; at most 64 are allowed\n");
}

TEST_CASE("the text of a problem omits unknown parts") {
    CHECK(Problem{"f", 1, 2, "k", "w"}.text() == "f:1:2: k: w");
    CHECK(Problem{"f", 1, 0, "k", "w"}.text() == "f:1: k: w");
    CHECK(Problem{"f", 0, 2, "k", "w"}.text() == "f: k: w");
    CHECK(Problem{"f", 1, 2, "", "w"}.text() == "f:1:2: w");
    CHECK(Problem{"", 0, 0, "k", "w"}.text() == "k: w");
    CHECK(Problem{"", 0, 0, "", "w"}.text() == "w");
}

TEST_CASE("unreadable files are problems with a remedy") {
    const gpunbd::test::TemporaryFolder made;
    const std::string& folder = made.path();
    const std::string path = made.path("file");
    CHECK(joined(load_file(folder).problems) ==
          folder + ": cannot be read: it is a folder; name a file in it, for example '" + folder +
              "/gpunbd.yaml'\n");
    CHECK(joined(load_file(path).problems) == path +
                                                  ": cannot be read: there is no such file; make "
                                                  "it, see gpunbd.yaml(5), or correct the path\n");
    CHECK(joined(load_file(path + "/x/y.yaml").problems) ==
          path + "/x/y.yaml: cannot be read: there is no folder '" + path +
              "/x'; make it, or correct the path\n");
    REQUIRE(symlink("nowhere", path.c_str()) == 0);
    CHECK(joined(load_file(path).problems) ==
          path +
              ": cannot be read: it is a link to 'nowhere', which does not exist; create that "
              "file, or correct the link\n");
    unlink(path.c_str());
    CHECK(joined(load_file("/dev/null/x").problems) ==
          "/dev/null/x: cannot be read: a part of the path is a file, not a folder; correct the "
          "path\n");
    const std::string long_path(5000, 'p');
    CHECK(joined(load_file(long_path).problems) ==
          long_path + ": cannot be read: the path is too long; use a shorter one\n");
    CHECK(contains(joined(load_file("/dev/null").problems),
                   "exports: is missing, the file is empty; write"));
    CHECK(joined(load_file("/dev/zero").problems) ==
          "/dev/zero: is larger than 1 MiB; name a configuration file\n");

    const std::string good = "exports: [{}]\n#";
    for (const std::size_t size : {std::size_t{1} << 20, (std::size_t{1} << 20) + 1}) {
        made.write("file", good + std::string(size - good.size(), '#'));
        CAPTURE(size);
        CHECK(load_file(path).problems.size() == (size == std::size_t{1} << 20 ? 0U : 1U));
    }
}

TEST_CASE("files without read permission are problems with a remedy") {
    std::optional<gpunbd::test::TemporaryFolder> made;
    std::string own;
    {
        const gpunbd::test::UnprivilegedUser not_root;
        made.emplace();
        own = made->write("own.yaml", "exports: [{}]", 0200);
        CHECK(joined(load_file(own).problems) == own +
                                                     ": cannot be read: permission denied: its "
                                                     "mode is 0200; permit it with chmod u+r\n");
        REQUIRE(mkdir(made->path("locked").c_str(), 0600) == 0);
        const std::string in_locked = made->path("locked/a.yaml");
        const std::string problem = joined(load_file(in_locked).problems);
        CHECK(problem.starts_with(in_locked + ": cannot be read: permission denied: user "));
        CHECK(contains(problem, " may not enter the folder '" + made->path("locked") +
                                    "'; permit it with chmod or chown, or move the file\n"));
    }
    if (geteuid() == 0) {
        REQUIRE(chown(own.c_str(), 0, 0) == 0);
        REQUIRE(chmod(own.c_str(), 0600) == 0);
        const gpunbd::test::UnprivilegedUser not_root;
        CHECK(contains(joined(load_file(own).problems),
                       " may not read it, it belongs to root and has mode 0600; permit it with "
                       "chmod or chown, or run gpunbd as root\n"));
    }
}

TEST_CASE("vsock listeners are read and checked") {
    const Options options = options_of(
        "listeners: {vsock: [{}, {cid: 2}, {cid: any, port: 4294967294}]}\nexports: [{}]\n");
    CHECK(options.tcp.empty());
    CHECK(options.vsock ==
          std::vector<VsockListener>{{any_cid, 10809}, {2, 10809}, {any_cid, 4294967294}});
    const WrongFile rows[] = {
        {"a name", "exports: [{}]\nlisteners: {vsock: [{cid: host}]}\n",
         "f:2:27: listeners.vsock[0].cid: 'host' is not a context id; write any, or the number of "
         "this machine: 2 of a host\n"},
        {"every bit", "exports: [{}]\nlisteners: {vsock: [{cid: 4294967295}]}\n",
         "f:2:27: listeners.vsock[0].cid: '4294967295' is not a context id; write any, or the "
         "number of this machine: 2 of a host\n"},
        {"port 0", "exports: [{}]\nlisteners: {vsock: [{port: 0}]}\n",
         "f:2:28: listeners.vsock[0].port: '0' is out of range; write a whole number from 1 to "
         "4294967294\n"},
        {"twice", "exports: [{}]\nlisteners: {vsock: [{}, {cid: any, port: 10809}]}\n",
         "f:2:25: listeners.vsock[1]: cid any port 10809 is already in line 2; give each once\n"},
    };
    check(rows);
}

TEST_CASE("ublk is a boolean or a mapping") {
    const Options options = options_of(
        "exports:\n"
        "  - {name: a}\n"
        "  - {name: b, ublk: false}\n"
        "  - {name: c, ublk: true}\n"
        "  - {name: d, ublk: {}}\n"
        "  - {name: e, ublk: {id: 7, queues: 3, depth: 32}}\n");
    const auto& exports = options.exports;
    for (const auto& off : {exports[0], exports[1]}) CHECK(off.ublk == UblkOptions{});
    for (const auto& on : {exports[2], exports[3]}) CHECK(on.ublk == UblkOptions{.enabled = true});
    CHECK(exports[4].ublk == UblkOptions{.enabled = true, .id = 7, .queues = 3, .depth = 32});
    const WrongFile rows[] = {
        {"no boolean", "exports: [{ublk: 7}]\n",
         "f:1:18: exports[0].ublk: '7' is neither true nor false; write true or false\n"},
        {"unknown key", "exports: [{ublk: {ids: 7}}]\n",
         "f:1:19: exports[0].ublk.ids: unknown key; did you mean id?\n"},
        {"too deep", "exports: [{ublk: {depth: 5000}}]\n",
         "f:1:26: exports[0].ublk.depth: '5000' is out of range; write a whole number from 1 to "
         "4096\n"},
    };
    check(rows);
}

TEST_CASE("block sizes are read and checked") {
    const Options options = options_of(
        "exports:\n"
        "  - {name: a, size: 1G, block_size: {minimum: 64K}}\n"
        "  - {name: b, block_size: {minimum: 512, preferred: 1M, maximum: 16896K}}\n"
        "  - {name: c, block_size: {}}\n"
        "  - {name: d}\n");
    const auto& exports = options.exports;
    CHECK(exports[0].block_size.best() == 64 * KiB);
    CHECK(exports[1].block_size == BlockSizes{512, 1 * MiB, 16896 * KiB});
    CHECK(exports[1].block_size.best() == 1 * MiB);
    for (const auto& plain : {exports[2], exports[3]}) {
        CHECK(plain.block_size == BlockSizes{1, std::nullopt, 32 * MiB});
        CHECK(plain.block_size.best() == 4 * KiB);
    }
    const WrongFile rows[] = {
        {"not a power of two", "exports: [{block_size: {minimum: 1000}}]\n",
         "f:1:34: exports[0].block_size.minimum: '1000' is not a power of two; use for example "
         "512\n"},
        {"minimum too large", "exports: [{block_size: {minimum: 128K}}]\n",
         "f:1:34: exports[0].block_size.minimum: '128K' is out of range; write 1 to 64K\n"},
        {"maximum too small", "exports: [{block_size: {maximum: 64K}}]\n",
         "f:1:34: exports[0].block_size.maximum: '64K' is out of range; write 1M to 32M\n"},
        {"preferred below minimum", "exports: [{block_size: {minimum: 64K, preferred: 4K}}]\n",
         "f:1:50: exports[0].block_size.preferred: 4K is less than minimum (64K); use at least "
         "that\n"},
        {"preferred above maximum", "exports: [{block_size: {preferred: 4M, maximum: 2M}}]\n",
         "f:1:36: exports[0].block_size.preferred: preferred (4M) is more than maximum (2M); use "
         "at most that\n"},
        {"maximum not a multiple of minimum",
         "exports: [{block_size: {minimum: 4K, maximum: 1537K}}]\n",
         "f:1:47: exports[0].block_size.maximum: 1537K is not a multiple of minimum (4K); use for "
         "example 1536K\n"},
        {"size not a multiple of minimum", "exports: [{size: 1536, block_size: {minimum: 1K}}]\n",
         "f:1:18: exports[0].size: 1536 is not a multiple of block_size.minimum (1K); use for "
         "example 2K\n"},
    };
    check(rows);
}

// Random options that a file can express.
Options random_options(std::mt19937_64& random) {
    const auto pick = [&](std::uint64_t n) { return random() % n; };
    const auto coin = [&] { return random() % 2 == 0; };
    Options o;
    for (std::uint64_t i = pick(3); i > 0; --i) {
        o.tcp.push_back({coin() ? "10.0.0.1" : "fe80::1%eth0", static_cast<std::uint16_t>(i)});
    }
    const bool listens_by_default = pick(8) == 0;
    if (listens_by_default) o.tcp = default_listeners(10809);
    for (std::uint64_t i = listens_by_default ? 0 : pick(3); i > 0; --i) {
        o.unix_sockets.push_back({"/run/a \"b\\" + std::to_string(i),
                                  static_cast<std::uint32_t>(pick(01000)),
                                  coin() ? "root:1000" : ""});
    }
    for (std::uint64_t i = listens_by_default ? 0 : pick(3); i > 0; --i) {
        o.vsock.push_back({coin() ? any_cid : static_cast<std::uint32_t>(i),
                           static_cast<std::uint32_t>(i + pick(1 << 30))});
    }
    for (std::uint64_t i = pick(3); i > 0; --i) {
        DeviceOptions& device = o.devices.emplace_back();
        const bool is_bar = coin();
        device.id = is_bar ? "pci:0000:01:00.0/" + std::to_string(i) : "cuda:" + std::to_string(i);
        if (coin()) device.reserve = pick(1 << 20);
        if (coin()) device.capacity = 64 * KiB + pick(1 << 20);
        if (is_bar) device.force = coin();
        if (!is_bar && coin()) device.mapped = pick(1 << 20);
        if (!is_bar && coin()) device.revocable = coin() ? all_memory : pick(1 << 20);
        if (!is_bar && coin()) device.gpu_use = coin() ? GpuUse::all : GpuUse::copy_engines;
    }
    const char* names[] = {"",  "a", "it's", "~",        "null", "true",
                           "5", "#", "x: y", "\xc3\xa9", "- "};
    for (std::uint64_t i = 0; i <= pick(std::size(names) - 1); ++i) {
        ExportOptions& e = o.exports.emplace_back();
        e.name = names[i];
        e.description = coin() ? "" : "lines\n\tand \"quotes\" and \\ and " + e.name;
        if (coin()) {
            e.size = coin() ? Size{.percent = static_cast<std::uint32_t>(1 + pick(100))}
                            : Size{.bytes = 512 * (1 + pick(std::uint64_t{1} << pick(50)))};
        }
        if (coin()) e.devices = {"host", "cuda:7"};
        e.page_size = (64 * KiB) << pick(11);
        if (coin()) e.layout = LayoutKind::stripe;
        if (e.layout == LayoutKind::stripe && coin()) e.stripe_size = e.page_size * (1 + pick(9));
        if (coin()) e.provision = Provision::full;
        e.read_only = coin();
        if (coin()) {
            e.block_size.minimum = std::uint64_t{1} << pick(17);
            e.block_size.maximum = (16 + pick(17)) * MiB;
            if (coin()) e.block_size.preferred = (64 * KiB) << pick(9);
            if (e.size) e.size->bytes = e.size->bytes / (64 * KiB) * (64 * KiB);
            if (e.size && e.size->percent == 0 && e.size->bytes == 0) e.size->bytes = 64 * KiB;
        }
        e.ublk.enabled = coin();
        if (e.ublk.enabled && coin()) {
            e.ublk.id = static_cast<std::uint32_t>(i);
            e.ublk.depth = static_cast<std::uint32_t>(1 + pick(4096));
            if (coin()) e.ublk.queues = static_cast<std::uint32_t>(1 + pick(64));
        }
        e.tls_required = coin();
    }
    if (coin()) o.tls.certificates = "/etc/it's #1";
    if (coin()) o.tls.psk = "keys: a";
    o.tls.verify_clients = o.tls.certificates.empty() || coin();
    if (o.tls.has_credentials()) {
        o.tls.mode = std::array{TlsMode::off, TlsMode::optional, TlsMode::required}[pick(3)];
    }
    if (coin()) o.pipeline.chunk_size = (64 * KiB) << pick(9);
    o.pipeline.slots = static_cast<std::uint32_t>(1 + pick(8));
    o.pipeline.pinned = coin() ? 256 * MiB : 1 * GiB;
    o.threads = static_cast<std::uint32_t>(pick(1025));
    o.limits.connections = static_cast<std::uint32_t>(1 + pick(1'000'000));
    if (pick(2) == 0) {
        o.limits.connections_per_peer = static_cast<std::uint32_t>(1 + pick(o.limits.connections));
    }
    if (pick(2) == 0) {
        o.limits.connections_reserved = static_cast<std::uint32_t>(pick(o.limits.connections));
    }
    if (pick(2) == 0) o.limits.handshakes = static_cast<std::uint32_t>(1 + pick(1'000'000));
    o.limits.handshake = std::chrono::seconds(1 + pick(3600));
    o.limits.idle = std::chrono::seconds(pick(604'801));
    o.limits.unreachable = std::chrono::seconds(pick(28'801));
    o.limits.drain = std::chrono::seconds(pick(3601));
    o.limits.in_flight_per_connection = 32 * MiB + pick(1 * GiB);
    o.limits.in_flight = o.limits.in_flight_per_connection + pick(1 * GiB);
    const char* levels[] = {"trace", "debug", "info", "warn", "error"};
    o.log.level = levels[pick(5)];
    if (coin()) o.log.format = LogFormat::json;
    o.trace = coin();
    return o;
}

TEST_CASE("tls: certificates and keys set the mode to required by default") {
    const auto mode = [](const std::string& text) {
        return options_of("exports: [{}]\ntls: " + text).tls.mode;
    };
    CHECK(mode("{}") == TlsMode::off);
    CHECK(mode("{certificates: /a}") == TlsMode::required);
    CHECK(mode("{psk: /a}") == TlsMode::required);
    CHECK(mode("{psk: /a, mode: optional}") == TlsMode::optional);
    CHECK(mode("{psk: /a, certificates: /b, verify_clients: false, mode: off}") == TlsMode::off);
}

TEST_CASE("tls: invalid settings are problems") {
    const WrongFile rows[] = {
        {"a mode without credentials", "exports: [{}]\ntls: {mode: required}\n",
         "f:2:13: tls.mode: TLS needs certificates or shared keys; add for example certificates: "
         "/etc/gpunbd/tls, or psk: /etc/gpunbd/keys.psk\n"},
        {"verify_clients without certificates",
         "exports: [{}]\ntls: {psk: /k, verify_clients: false}\n",
         "f:2:32: tls.verify_clients: has no effect without certificates; add certificates, or "
         "leave it out\n"},
        {"no such mode", "exports: [{}]\ntls: {mode: force, psk: /k}\n",
         "f:2:13: tls.mode: 'force' is none of off, optional or required\n"},
        {"an empty path", "exports: [{}]\ntls: {psk: ''}\n",
         "f:2:12: tls.psk: the path is empty; write for example /etc/gpunbd/tls\n"},
        {"an export's", "exports: [{tls: off}]\n",
         "f:1:17: exports[0].tls: 'off' is none of optional or required\n"},
    };
    check(rows);
}

TEST_CASE("load_text reads the output of to_yaml as equal options") {
    std::mt19937_64 random(7);
    for (int i = 0; i < 500; ++i) {
        const Options options = random_options(random);
        const std::string yaml = to_yaml(options);
        CAPTURE(yaml);
        const Options again = options_of(yaml);
        REQUIRE(again == options);
        REQUIRE(to_yaml(again) == yaml);
    }
}

TEST_CASE("admin: reachable addresses need a token or TLS") {
    const std::string start = "exports: [{size: 1M, devices: [host]}]\n";
    const std::string tls = "tls: {mode: off, certificates: /c}\n";
    for (const std::string& good : std::vector<std::string>{
             "admin: {tcp: {address: 127.0.0.1}}",
             "admin: {tcp: {address: '::1'}}",
             "admin: {tcp: {address: 0.0.0.0, token: /t}}",
             tls + "admin: {tcp: {address: 0.0.0.0, tls: true}}",
             "admin: {tcp: {address: 127.0.0.1}, hosts: [a.example]}",
         }) {
        CAPTURE(good);
        options_of(start + good);
    }
    const std::string unproved = "tls: {mode: off, certificates: /c, verify_clients: false}\n";
    for (const std::string& bad : std::vector<std::string>{
             "admin: {tcp: {address: 0.0.0.0}}",
             "admin: {tcp: {address: '::'}}",
             "admin: {tcp: {address: 10.0.0.1, tls: false}}",
             "admin: {tcp: {address: 127.0.0.1, tls: true}}",
             unproved + "admin: {tcp: {address: 0.0.0.0, tls: true}}",
             "admin: {tcp: {token: /t}}",
             "admin: {tcp: {tls: true}}",
             "admin: {socket: none, hosts: [a.example]}",
             "admin: {tcp: {port: 80}}",
             "admin: {socket: ''}",
             "admin: {hosts: ['a b']}",
             "admin: {tcp: {address: 127.0.0.1}, hosts: ['*.example']}",
         }) {
        CAPTURE(bad);
        CHECK(contains(problems(start + bad), "admin"));
    }
}

}  // namespace
}  // namespace gpunbd::config
