// The v1model architecture, declared anew for mrc_testbed/switch/: the same names, parameters and meanings that simple_switch
// documents. Which externs the C backend takes is decided in mrc_testbed/switch/compiler, by name.

#ifndef _V1_MODEL_P4_
#define _V1_MODEL_P4_

#include <core.p4>

// From version 20200408 on ports have a type, and the type of an index is a parameter of counters, meters and registers.
#ifndef V1MODEL_VERSION
#define V1MODEL_VERSION 20180101
#endif
const bit<32> __v1model_version = V1MODEL_VERSION;

#if V1MODEL_VERSION >= 20200408
#define INDEX_PARAM <I>
#define AND_INDEX_PARAM , I
#define INDEX I
typedef bit<9> PortId_t;
#else
#define INDEX_PARAM
#define AND_INDEX_PARAM
#define INDEX bit<32>
#endif

match_kind {
    range,
    optional,
    selector
}

@metadata @name("standard_metadata")
struct standard_metadata_t {
    bit<9>  ingress_port;
    bit<9>  egress_spec;                // 511: drop
    bit<9>  egress_port;                // read in the egress only
    bit<32> instance_type;
    bit<32> packet_length;              // bytes, as received
    bit<32> enq_timestamp;              // microseconds
    bit<19> enq_qdepth;                 // packets
    bit<32> deq_timedelta;              // microseconds
    bit<19> deq_qdepth;                 // packets
    bit<48> ingress_global_timestamp;   // microseconds since the device started
    bit<48> egress_global_timestamp;
    bit<16> mcast_grp;
    bit<16> egress_rid;
    bit<1>  checksum_error;
    error   parser_error;
    bit<3>  priority;
}

enum CounterType {
    packets,
    bytes,
    packets_and_bytes
}

enum MeterType {
    packets,
    bytes
}

#define V1MODEL_METER_COLOR_GREEN  0
#define V1MODEL_METER_COLOR_YELLOW 1
#define V1MODEL_METER_COLOR_RED    2

extern counter INDEX_PARAM {
    counter(bit<32> size, CounterType type);
    void count(in INDEX index);
}

extern direct_counter {
    direct_counter(CounterType type);
    void count();
}

extern meter INDEX_PARAM {
    meter(bit<32> size, MeterType type);
    void execute_meter<T>(in INDEX index, out T result);
}

extern direct_meter<T> {
    direct_meter(MeterType type);
    void read(out T result);
}

extern register<T AND_INDEX_PARAM> {
    register(bit<32> size);
    void read(out T result, in INDEX index);
    void write(in INDEX index, in T value);
}

extern action_profile {
    action_profile(bit<32> size);
}

enum HashAlgorithm {
    crc32,
    crc32_custom,
    crc16,
    crc16_custom,
    random,
    identity,
    csum16,
    xor16
}

extern action_selector {
    action_selector(HashAlgorithm algorithm, bit<32> size, bit<32> outputWidth);
}

enum CloneType {
    I2E,
    E2E
}

// Old and superseded by the checksum functions; refused by name.
extern Checksum16 {
    Checksum16();
    bit<16> get<D>(in D data);
}

extern void random<T>(out T result, in T lo, in T hi);
extern void digest<T>(in bit<32> receiver, in T data);
extern void mark_to_drop();                 // the older form
extern void mark_to_drop(inout standard_metadata_t standard_metadata);
extern void hash<O, T, D, M>(out O result, in HashAlgorithm algo, in T base, in D data, in M max);
extern void verify_checksum<T, O>(in bool condition, in T data, in O checksum, HashAlgorithm algo);
extern void update_checksum<T, O>(in bool condition, in T data, inout O checksum, HashAlgorithm algo);
extern void verify_checksum_with_payload<T, O>(in bool condition, in T data, in O checksum, HashAlgorithm algo);
extern void update_checksum_with_payload<T, O>(in bool condition, in T data, inout O checksum, HashAlgorithm algo);
extern void clone(in CloneType type, in bit<32> session);
extern void clone_preserving_field_list(in CloneType type, in bit<32> session, bit<8> index);
extern void resubmit_preserving_field_list(bit<8> index);
extern void recirculate_preserving_field_list(bit<8> index);
// The forms before the _preserving_field_list ones; what `data` lists of the metadata is kept.
extern void clone3<T>(in CloneType type, in bit<32> session, in T data);
extern void resubmit<T>(in T data);
extern void recirculate<T>(in T data);
extern void truncate(in bit<32> length);
extern void assert(in bool check);
extern void assume(in bool check);
extern void log_msg(string msg);
extern void log_msg<T>(string msg, in T data);

#undef INDEX_PARAM
#undef AND_INDEX_PARAM
#undef INDEX

parser Parser<H, M>(packet_in b,
                    out H parsedHdr,
                    inout M meta,
                    inout standard_metadata_t standard_metadata);

control VerifyChecksum<H, M>(inout H hdr, inout M meta);

@pipeline
control Ingress<H, M>(inout H hdr, inout M meta, inout standard_metadata_t standard_metadata);

@pipeline
control Egress<H, M>(inout H hdr, inout M meta, inout standard_metadata_t standard_metadata);

control ComputeChecksum<H, M>(inout H hdr, inout M meta);

@deparser
control Deparser<H>(packet_out b, in H hdr);

package V1Switch<H, M>(Parser<H, M> p,
                       VerifyChecksum<H, M> vr,
                       Ingress<H, M> ig,
                       Egress<H, M> eg,
                       ComputeChecksum<H, M> ck,
                       Deparser<H> dep);

#endif
