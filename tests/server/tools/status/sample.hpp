// Sample responses as described in openapi.yaml.
#pragma once

#include <fmt/format.h>

#include <string>

namespace gpunbd::status {

// The clock was set after the start: it is `time` - 1'700'000'000 seconds ago. `moved`: the bytes
// that "fast" has read; it has received one request per thousand. `stalled`: the number of its
// stalled clients, and of its errors beyond five.
inline std::string sample_status(double time = 1'700'003'600, std::uint64_t moved = 0,
                                 int stalled = 0) {
    return fmt::format(
        R"({{"time":{},"process":{{"version":"0.1.0","commit":"abc1234","build":"Release","pid":4711,
        "started":100000000.0,"uptime":{},"cpu_seconds":12.5,"resident":123456789,"open_files":45,
        "max_open_files":1024,"workers":2,"state":"serving"}},
        "progress":[{{"what":"provisioning","of":"fast","done":1073741824,"total":4294967296,
        "unit":"bytes"}}],"accepted":120,"connections":2,"refused":{{"full":1,"access":2}},
        "handshakes":9,"tls_handshakes":1,"failed_handshakes":{{"left":4}},
        "devices":[{{"id":"cuda:0","name":"NVIDIA H200","failed":false,"total":150754820096,
        "available":75377410048,"reserve":0,"mapped":0,"allocated":37688705024,"used":1073741824,
        "slabs":1,"staging":0,"staging_used":0,"staging_waits":0,"failures":0,"copies":[],
        "others_compute":null,"competition_noticed":0}},
        {{"id":"host","name":"host memory","failed":true,"total":0,"available":0}}],
        "exports":[{{"name":"fast","description":"","size":4294967296,"used":1073741824,
        "connections":1,"stalled":{},"last_second":{{"read_p50":0.0001,"read_p99":0.02,
        "write_p50":0.0002,"write_p99":0.01}},"memory":[{{"device":"cuda:0","used":1073741824,"allocated":37688705024,
        "slabs":1}}],"requests":[{{"type":"read","requests":{},"bytes":{},"in_flight":2,
        "errors":{{"EIO":{}}},"latency":{{"count":1,"sum":1,"p50":5,"p90":6,"p99":7,"max":9}}}},{{"type":"write","requests":20,"bytes":4096,"in_flight":1,"errors":{{}},
        "latency":{{"p50":5,"p99":7}}}}]}},
        {{"name":"slow","size":1048576,"used":0,"connections":0,"memory":[],"requests":[]}}],
        "contents":[{{"name":"gone","size":1073741824,"own":4194304,"memory":[{{"device":"cuda:0",
        "used":8388608,"allocated":67108864}}],"state":"no export has them","freed_in":299.5}}]}})",
        time, time - 1'700'000'000, stalled, 10 + moved / 1000, (1 << 20) + moved, 5 + stalled);
}

inline std::string sample_tick(double time, std::uint64_t moved, int stalled = 0) {
    return fmt::format(
        R"({{"status":{},"connections":[{{"id":1,"peer":"10.1.2.3:4567","listener":"tcp",
        "export":"fast","serving":true,"read_only":false,"age":{},"tls":null,
        "identity":"alice","requests":{},"in_flight":3,"errors":{},"read":{},"written":4096,
        "stalled":{}}},
        {{"id":2,"peer":"unix","listener":"unix","export":null,"serving":false,"age":{},
        "identity":null}}],"connections_left_out":7,"events":[]}})",
        sample_status(time, moved, stalled), time - 1'700'000'000, moved / 1000, 5 + stalled, moved,
        stalled * 12.5, time - 1'700'000'000);
}

}  // namespace gpunbd::status
