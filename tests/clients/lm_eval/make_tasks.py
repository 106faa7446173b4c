"""Writes facts.jsonl and sums.jsonl, the items of the tasks beside it. Run it to change them: `python make_tasks.py`."""
import json
import pathlib
import random

HERE = pathlib.Path(__file__).parent

CAPITALS = """France Paris|Japan Tokyo|Italy Rome|Egypt Cairo|Canada Ottawa|Australia Canberra|Brazil Brasília|Turkey Ankara|Kenya Nairobi
Norway Oslo|Poland Warsaw|Portugal Lisbon|Spain Madrid|Greece Athens|Austria Vienna|Hungary Budapest|Finland Helsinki|Sweden Stockholm
Denmark Copenhagen|Ireland Dublin|Iceland Reykjavik|Ukraine Kyiv|Russia Moscow|China Beijing|India Delhi|Pakistan Islamabad|Iran Tehran
Iraq Baghdad|Syria Damascus|Lebanon Beirut|Jordan Amman|Israel Jerusalem|Afghanistan Kabul|Nepal Kathmandu|Bangladesh Dhaka
Thailand Bangkok|Vietnam Hanoi|Malaysia Kuala Lumpur|Indonesia Jakarta|Philippines Manila|Mongolia Ulaanbaatar|Cuba Havana|Jamaica Kingston
Peru Lima|Chile Santiago|Colombia Bogotá|Venezuela Caracas|Ecuador Quito|Bolivia Sucre|Uruguay Montevideo|Paraguay Asunción
Argentina Buenos Aires|Mexico Mexico City|Morocco Rabat|Algeria Algiers|Tunisia Tunis|Libya Tripoli|Sudan Khartoum|Ethiopia Addis Ababa
Ghana Accra|Nigeria Abuja|Senegal Dakar|Mali Bamako|Uganda Kampala|Rwanda Kigali|Zambia Lusaka|Zimbabwe Harare|Angola Luanda
Namibia Windhoek|Madagascar Antananarivo|Somalia Mogadishu|Latvia Riga|Estonia Tallinn|Lithuania Vilnius|Serbia Belgrade|Croatia Zagreb
Slovenia Ljubljana|Slovakia Bratislava|Bulgaria Sofia|Romania Bucharest|Albania Tirana|Georgia Tbilisi|Armenia Yerevan|Azerbaijan Baku
Belgium Brussels|Cyprus Nicosia|Malta Valletta|Kazakhstan Astana|Uzbekistan Tashkent|Fiji Suva"""

STATES = """Texas Austin|California Sacramento|Florida Tallahassee|Ohio Columbus|Georgia Atlanta|Arizona Phoenix|Colorado Denver|Nevada Carson City
Oregon Salem|Utah Salt Lake City|Idaho Boise|Montana Helena|Wyoming Cheyenne|Kansas Topeka|Nebraska Lincoln|Iowa Des Moines|Missouri Jefferson City
Illinois Springfield|Indiana Indianapolis|Michigan Lansing|Wisconsin Madison|Minnesota Saint Paul|Kentucky Frankfort|Tennessee Nashville
Alabama Montgomery|Mississippi Jackson|Louisiana Baton Rouge|Arkansas Little Rock|Oklahoma Oklahoma City|Virginia Richmond|Maryland Annapolis
Delaware Dover|Pennsylvania Harrisburg|Massachusetts Boston|Connecticut Hartford|Vermont Montpelier|Maine Augusta|Alaska Juneau|Hawaii Honolulu"""

SYMBOLS = """hydrogen H|helium He|lithium Li|carbon C|nitrogen N|oxygen O|fluorine F|neon Ne|sodium Na|magnesium Mg|aluminium Al|silicon Si
phosphorus P|sulfur S|chlorine Cl|argon Ar|potassium K|calcium Ca|titanium Ti|chromium Cr|manganese Mn|iron Fe|cobalt Co|nickel Ni|copper Cu
zinc Zn|bromine Br|silver Ag|tin Sn|iodine I|barium Ba|tungsten W|platinum Pt|gold Au|mercury Hg|lead Pb|uranium U|radium Ra|xenon Xe|krypton Kr"""

OPPOSITES = """hot cold|big small|fast slow|early late|high low|happy sad|rich poor|strong weak|light dark|open closed|full empty|young old
wet dry|hard soft|near far|loud quiet|clean dirty|deep shallow|wide narrow|thick thin|brave cowardly|true false|right wrong|cheap expensive
simple complex|ancient modern|rough smooth|sharp blunt|guilty innocent|generous selfish|polite rude|sweet sour|tall short|heavy weightless
victory defeat|love hate|war peace|buy sell|push pull|arrive depart|accept refuse|attack defend|begin end|borrow lend|build destroy|laugh cry
remember forget|increase decrease|import export|expand contract"""

PAST = """go went|see saw|eat ate|buy bought|think thought|run ran|write wrote|take took|give gave|begin began|break broke|bring brought|catch caught
choose chose|come came|draw drew|drink drank|drive drove|fall fell|feel felt|fight fought|find found|fly flew|forget forgot|freeze froze|grow grew
hear heard|hide hid|hold held|keep kept|know knew|lead led|leave left|lose lost|meet met|pay paid|ride rode|ring rang|rise rose|say said|sell sold
send sent|shake shook|sing sang|sink sank|sleep slept|speak spoke|steal stole|swim swam|teach taught|tear tore|throw threw|wear wore|win won"""

KINDS = [
    (CAPITALS, "The capital of {} is"),
    (STATES, "The capital of the American state of {} is"),
    (SYMBOLS, "The chemical symbol of {} is"),
    (OPPOSITES, "The opposite of {} is"),
    (PAST, "The past tense of the verb {} is"),
]


def pairs(text):
    return [tuple(pair.split(" ", 1)) for line in text.split("\n") for pair in line.split("|")]


def facts(chance):
    for text, frame in KINDS:
        known = pairs(text)
        for asked, answer in known:
            others = chance.sample([other for _, other in known if other != answer], 3)
            right = chance.randrange(4)
            yield {"question": frame.format(asked), "choices": others[:right] + [answer] + others[right:], "right": right}
    for _ in range(127):
        a, b = chance.randrange(11, 90), chance.randrange(11, 90)
        choices = [str(a + b + away) for away in (0, 1, 10, -9)]
        chance.shuffle(choices)
        yield {"question": f"{a} + {b} =", "choices": choices, "right": choices.index(str(a + b))}


def sums(chance):
    for _ in range(200):
        shown = [(chance.randrange(2, 60), chance.randrange(2, 60)) for _ in range(4)]
        *examples, (a, b) = shown
        question = "".join(f"{x} + {y} = {x + y}\n" for x, y in examples) + f"{a} + {b} ="
        yield {"question": question, "answer": str(a + b)}


def main():
    chance = random.Random(4)
    for name, items in (("facts", facts(chance)), ("sums", sums(chance))):
        lines = [json.dumps(item, ensure_ascii=False) for item in items]
        chance.shuffle(lines)
        (HERE / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
